//! Plans as files: they have the form that `schema plan` prints, are explained, drawn and run.

mod schema;

use schema::complaints;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A job small enough to be trained on threads.
const TINY: &str =
    "plan tiny-llama --cluster cpu --stack meshwright-threads --precision f32 --gpus 4 --seq 32 --global-batch 8";

/// A job that no device can hold.
const TOO_LARGE: &str = "plan llama3-70b --cluster h100 --gpus 1 --seq 4096 --global-batch 8 --pin mbs=1";

/// A folder for the files of a test, gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("meshwright-plans-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn run(&self, args: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        command.args(args.split_whitespace()).current_dir(&self.0).env_remove("COLUMNS").output().unwrap()
    }

    fn answer(&self, args: &str) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "meshwright {args}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn plans_have_the_form_that_is_printed() {
    let folder = Folder::new("form");
    let schema: Value = serde_json::from_str(&folder.answer("schema plan")).unwrap();
    let plan: Value = serde_json::from_str(&folder.answer(&format!("{TINY} --format json"))).unwrap();
    assert_eq!(complaints(&schema, &plan), Vec::<String>::new());
    let mut stopped = plan.clone();
    stopped["search"]["gap"] = serde_json::json!({"at_most": 0.25, "under": "sampled bounds"});
    assert_eq!(complaints(&schema, &stopped), Vec::<String>::new());
    stopped["search"]["gap"]["under"] = Value::from("a guess");
    assert!(!complaints(&schema, &stopped).is_empty());
    let estimate = TINY.replace("plan", "estimate").replace("--gpus 4", "--parallel dp=2,pp=2 --format json");
    let estimate = folder.answer(&estimate);
    std::fs::write(folder.0.join("estimate.json"), &estimate).unwrap();
    assert!(folder.answer("diff estimate.json estimate.json").contains("dp=2"));
    let estimate: Value = serde_json::from_str(&estimate).unwrap();
    assert_eq!(complaints(&schema, &estimate), Vec::<String>::new());
    let nothing = folder.run(&format!("{TOO_LARGE} --format json"));
    assert_eq!(nothing.status.code(), Some(4));
    let nothing: Value = serde_json::from_slice(&nothing.stdout).unwrap();
    assert_eq!((complaints(&schema, &nothing), nothing["status"].as_str()), (Vec::new(), Some("infeasible")));
    // What is not so is found out.
    for (place, value) in [
        ("/predicted/step_time_s", Value::from("long")),
        ("/parallel/zero", Value::from(4)),
        ("/parallel/cp_kind", Value::from("rings")),
        ("/schema", Value::from("meshwright.plan/3")),
        ("/why/choices/0", Value::from(1)),
        ("/search", Value::from("no")),
    ] {
        let mut wrong = plan.clone();
        *wrong.pointer_mut(place).unwrap() = value;
        assert!(!complaints(&schema, &wrong).is_empty(), "{place}");
    }
    for key in plan.as_object().unwrap().keys() {
        let mut wrong = plan.clone();
        wrong.as_object_mut().unwrap().remove(key);
        assert!(!complaints(&schema, &wrong).is_empty(), "without {key}");
    }
}

#[test]
fn a_plan_is_explained_from_its_file() {
    let folder = Folder::new("explain");
    assert_eq!(folder.answer(&format!("{TINY} --format json -o plan.json")), "");
    let plan: Value = serde_json::from_str(&folder.read("plan.json")).unwrap();
    let text = folder.answer("explain plan.json");
    for note in plan["why"]["choices"].as_array().unwrap() {
        assert!(text.contains(note["choice"].as_str().unwrap()), "{note}\n{text}");
    }
    assert!(text.contains("BINDING CONSTRAINTS") && text.contains("ALTERNATIVES"), "{text}");
    let again: Value = serde_json::from_str(&folder.answer("explain plan.json --format json")).unwrap();
    assert_eq!(again, plan);
    let asked: Value = serde_json::from_str(&folder.answer("explain plan.json --why-not pp=4 --format json")).unwrap();
    let slower =
        asked["predicted"]["step_time_s"].as_f64().unwrap() - plan["predicted"]["step_time_s"].as_f64().unwrap();
    let told: f64 = asked["seconds"].as_array().unwrap().iter().map(|change| change[1].as_f64().unwrap()).sum();
    assert!(slower >= 0.0 && (told - slower).abs() < 1e-9, "{asked}");
}

/// The groups of a plan's program, as `compile` counts them.
#[test]
fn a_plan_names_its_groups() {
    let folder = Folder::new("groups");
    let parallel = "dp=2,tp=2,sp=false,zero=0,mbs=2";
    folder.answer(&format!("{TINY} --pin {parallel} --format json -o plan.json"));
    let text = folder.answer("explain plan.json --groups layer.F");
    assert!(text.contains("layer.F: one kernel") && text.contains("kernels are apart because"), "{text}");
    assert!(!text.contains("layer.B: one kernel") && text.contains("`all_reduce` is between"), "{text}");
    let compiled = folder.run(&format!("compile tiny-llama --parallel {parallel} --seq 32 --global-batch 8"));
    let told = String::from_utf8(compiled.stderr).unwrap();
    let table = told.find("body ").map(|from| &told[from..]).expect("a table");
    assert!(text.contains(table), "{text}\n{table}");
    let report: Value = serde_json::from_str(&folder.answer("explain plan.json --groups --format json")).unwrap();
    let layer = report["bodies"].as_array().unwrap().iter().find(|body| body["body"] == "layer.B").unwrap();
    assert!(layer["launches"][1].as_u64() < layer["launches"][0].as_u64() && !layer["groups"][0].is_null(), "{layer}");
    let refused = folder.run("explain plan.json --groups nothing");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && message.contains("there is no such body, but embed.F"), "{message}");
}

/// A plan that no machine can run is refused.
#[test]
fn an_absurd_plan_is_refused() {
    let folder = Folder::new("absurd");
    folder.answer(&format!("{TINY} --format json -o plan.json"));
    let plan: Value = serde_json::from_str(&folder.read("plan.json")).unwrap();
    let spoil = |path: &str, number: f64| {
        let mut spoiled = plan.clone();
        *spoiled.pointer_mut(path).expect(path) = number.into();
        std::fs::write(folder.0.join("spoiled.json"), spoiled.to_string()).unwrap();
        let refused = folder.run("explain spoiled.json");
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{path} {number}: {message}");
        assert!(message.contains("MW0830") && message.contains("not between"), "{path} {number}: {message}");
    };
    for seconds in [0.0, -0.0, 1e308, 5e-324] {
        spoil("/predicted/step_time_s", seconds);
        spoil("/alternatives/0/predicted/step_time_s", seconds);
    }
    spoil("/predicted/time_s/gemm", -1.0);
    spoil("/predicted/memory_gib/per_stage/0/device", -3.0);
    spoil("/predicted/memory_gib/per_stage/0/activations", 1e300);
}

#[test]
fn a_page_holds_all_that_it_shows() {
    let folder = Folder::new("page");
    folder.answer(&format!("{TINY} --format json -o plan.json"));
    let page = folder.answer("explain plan.json --format html");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert!(!page.contains("{{") && !page.contains("<script") && !page.contains("src="), "it loads nothing");
    for part in ["step time by category", "memory of each pipeline rank", "step time against memory"] {
        assert!(page.contains(&format!("aria-label=\"{part}\"")), "{part}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(page.matches("<table").count(), page.matches("</table>").count());
}

/// The word after a text, up to a space.
fn word_after<'a>(text: &'a str, before: &str) -> &'a str {
    let from = text.find(before).unwrap_or_else(|| panic!("no `{before}` in\n{text}")) + before.len();
    text[from..].split_whitespace().next().unwrap_or_default()
}

/// A plan has one memory and one time, in text, JSON, page and export: those of its fullest device and of its step.
#[test]
fn a_plan_has_one_memory_and_one_time() {
    let folder = Folder::new("one-figure");
    for job in [
        "llama3-8b --gpus 8 --seq 8k --global-batch 128 --pin tp=2,mbs=1",
        "llama3-70b --gpus 64 --seq 4k --global-batch 64 --pin tp=8,pp=4,mbs=1,schedule=1f1b,zero=1",
        "mixtral-8x7b --gpus 32 --seq 4k --global-batch 64 --pin tp=2,pp=4,mbs=1,schedule=1f1b,zero=1,ep=8",
    ] {
        folder.answer(&format!("plan {job} --format json -o plan.json"));
        let plan: Value = serde_json::from_str(&folder.read("plan.json")).unwrap();
        let memory = &plan["predicted"]["memory_gib"];
        let held = memory["total"].as_f64().unwrap();
        let rank = memory["worst_rank"].as_u64().unwrap() as usize;
        assert_eq!(memory["per_stage"][rank]["device"].as_f64(), Some(held), "{job}");
        let step = support::units::time(plan["predicted"]["step_time_s"].as_f64().unwrap());
        let [exact, short] = [format!("{held:.2}"), format!("{held:.1}")];

        let text = folder.answer(&format!("plan {job}"));
        assert_eq!(word_after(&text, "most on a device "), exact, "{job}");
        assert!(text.contains(&format!("step      {step} (80 % interval")), "{job}: {step}\n{text}");
        assert!(text.contains(&format!("pipeline rank {rank} uses {short} GiB of")), "{job}: {short}\n{text}");
        let page = folder.answer("explain plan.json --format html");
        assert_eq!(word_after(&page, "<span>memory of the worst rank</span><b>"), short, "{job}");
        assert!(page.contains(&format!("<span>step</span><b>{step}</b>")), "{job}: {step}");
        let export = folder.answer("export plan.json --to megatron");
        assert!(export.contains(&format!("predicted: {step} a step, {short} of")), "{job}: {step}, {short}\n{export}");
    }
}

/// A pipeline's idle time is that of the average rank, and the waiting of the busiest rank is a part of its step.
#[test]
fn idle_ranks_and_the_busiest_rank_are_told_apart() {
    let folder = Folder::new("bubble");
    let job = "llama3-8b --gpus 8 --seq 4k --global-batch 16 --parallel pp=8,mbs=1,schedule=1f1b";
    let text = folder.answer(&format!("estimate {job}"));
    let estimate: Value = serde_json::from_str(&folder.answer(&format!("estimate {job} --format json"))).unwrap();
    let predicted = &estimate["predicted"];
    let idle = format!("bubble {:.1} % on average\n", 100.0 * predicted["bubble"].as_f64().unwrap());
    let waits = predicted["time_s"]["bubble"].as_f64().unwrap() / predicted["step_time_s"].as_f64().unwrap();
    assert!(text.contains(&idle) && text.contains("STEP OF THE BUSIEST RANK"), "{idle}\n{text}");
    let row = text.lines().find(|line| line.starts_with("waiting in the pipeline")).expect(&text);
    assert!(row.ends_with(&format!("{:.1} %", 100.0 * waits)), "{row}: {waits}");
}

#[test]
fn a_plan_is_run() {
    let folder = Folder::new("train");
    std::fs::write(folder.0.join("text.txt"), "the quick brown fox jumps over the lazy dog. ".repeat(200)).unwrap();
    folder.answer(&format!("{TINY} --pin dp=2,pp=2,recompute=none,zero=1 --format json -o plan.json"));
    let undecided = folder.read("plan.json").replace("\"offload\": \"none\"", "\"offload\": \"auto\"");
    std::fs::write(folder.0.join("as-it-is.json"), undecided).unwrap();
    let refused = folder.run("train --plan as-it-is.json --data text.txt --steps 1");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(message.contains("as-it-is.json cannot be run as it is") && message.contains("offload"), "{message}");
    folder.answer("train --plan plan.json --data text.txt --steps 1 --out run");
    let options = folder.read("run/run.toml");
    let plan: Value = serde_json::from_str(&folder.read("plan.json")).unwrap();
    let stages = format!(",stages={}", plan["stages"][1]["start"]);
    for part in ["dp=2,tp=1,pp=2", &stages, "seq = 32", "global_batch = 8", "model = \"tiny-llama\""] {
        assert!(options.contains(part), "{part}\n{options}");
    }
    // Flags win.
    folder.answer("train --plan as-it-is.json --parallel dp=2 --seq 16 --data text.txt --steps 1 --out other");
    assert!(folder.read("other/run.toml").contains("seq = 16"));
}
