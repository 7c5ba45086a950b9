//! Plans against configurations that were published, and against the playbook's procedure; and what planning takes.
//!
//! `cargo bench --bench plans` prints the tables of docs/plans.md and of docs/benchmarks.md, section Planning.

use meshwright::autotune::plan::{PlanRequest, find};
use meshwright::compiler::parallel;
use meshwright::estimator::{EstimateReport, Estimator};
use std::time::Instant;

/// The program's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Seconds after which the best so far will do.
const MOST_SECONDS: f64 = 60.0;

/// A training run that was published: what it is, where, and the degrees that the configuration had; then all that is known of it.
struct Published {
    name: &'static str,
    request: fn() -> PlanRequest,
    degrees: &'static str,
    parallel: &'static str,
}

fn on(stack: &str, precision: &str, request: PlanRequest) -> PlanRequest {
    PlanRequest { stack: stack.into(), precision: precision.into(), ..request }
}

/// Dubey et al. 2024, table 4; DeepSeek-AI 2024, section 3.2; Narayanan et al. 2021, table 2 (PTD-P on 768 devices); Smith et
/// al. 2022, section 3.
const PUBLISHED: &[Published] = &[
    Published {
        name: "Llama 3 405B, 8,192 H100",
        request: || on("llama-2024", "bf16", PlanRequest::new("llama3.1-405b", "h100", 8192, 8192, 2048)),
        degrees: "tp=8,cp=1,pp=16",
        parallel: "tp=8,cp=1,pp=16,vp=8,sp=true,zero=2,mbs=1",
    },
    Published {
        name: "Llama 3 405B, 16,384 H100",
        request: || on("llama-2024", "bf16", PlanRequest::new("llama3.1-405b", "h100", 16384, 8192, 2048)),
        degrees: "tp=8,cp=1,pp=16",
        parallel: "tp=8,cp=1,pp=16,vp=8,sp=true,zero=2,mbs=1",
    },
    Published {
        name: "Llama 3 405B, 131,072 tokens, 16,384 H100",
        request: || on("llama-2024", "bf16", PlanRequest::new("llama3.1-405b", "h100", 16384, 131_072, 128)),
        degrees: "tp=8,cp=16,pp=16",
        parallel: "tp=8,cp=16,cp_kind=allgather,pp=16,vp=8,sp=true,zero=2,mbs=1",
    },
    Published {
        name: "DeepSeek-V3, 2,048 H800",
        request: || PlanRequest {
            optimizer: "adamw-bf16".into(),
            ..on("deepseek-2024", "fp8-block", PlanRequest::new("deepseek-v3", "h800", 2048, 4096, 15360))
        },
        degrees: "tp=1,cp=1,pp=16,ep=64",
        parallel: "tp=1,pp=16,ep=64,zero=1,mbs=1,schedule=dualpipe,recompute=selective:layernorm+mla_up_proj,\
                   stages=4,7,11,15,19,23,27,31,35,39,43,47,51,55,59",
    },
    Published {
        name: "GPT-3 175B, 768 A100",
        request: || on("megatron-2022", "fp16", PlanRequest::new("gpt3-175b", "a100", 768, 2048, 1536)),
        degrees: "tp=8,pp=12",
        parallel: "tp=8,pp=12,mbs=1,recompute=full",
    },
    Published {
        name: "MT-NLG 530B, 2,240 A100",
        request: || on("megatron-2022", "fp16", PlanRequest::new("megatron-530b", "a100", 2240, 2048, 1920)),
        degrees: "tp=8,pp=35",
        parallel: "tp=8,pp=35,vp=3,mbs=1,recompute=full",
    },
];

/// Step 1 of the playbook for a model of `billions` parameters on `gpus` devices (Ultra-Scale Playbook, "Finding the best training
/// configuration"). Below 10B parameters it takes one technique; up to 100B tensor parallelism within the node with a pipeline or
/// with ZeRO-3. From 512 devices on it takes two techniques, from 1,024 on all three.
fn recipe(billions: f64, gpus: u64) -> Vec<&'static str> {
    match (billions < 10.0, gpus) {
        (true, ..512) => {
            vec!["tp=8,cp=1,pp=1,sp=true", "tp=1,cp=1,pp=1,zero=3,recompute=full", "tp=1,cp=1,pp=1,zero=3"]
        }
        (false, ..512) => vec!["tp=8,cp=1,sp=true,zero=1", "tp=8,cp=1,pp=1,sp=true,zero=3", "tp=1,cp=1,pp=1,zero=3"],
        (_, 512..1024) => vec!["tp=8,cp=1,sp=true,pp=1,zero=3", "tp=1,cp=1,zero=1"],
        _ => vec!["tp=8,cp=1,sp=true,zero=2"],
    }
}

fn best(estimator: &Estimator, request: &PlanRequest) -> Option<EstimateReport> {
    find(estimator, request, &|_| {}).ok()?.best.into_iter().next()
}

fn step(report: Option<&EstimateReport>) -> String {
    report.map_or_else(|| "none fits".into(), |report| format!("{:.2} s", report.predicted.step_time_s))
}

/// The keys that differ from defaults.
fn short(report: &EstimateReport) -> String {
    let text = parallel::print(&report.parallel);
    let usual = ["cp=1", "rank_order=pp", "sp=false"];
    text.split(',').filter(|item| item.contains('=') && !usual.contains(item)).collect::<Vec<_>>().join(",")
}

fn published() {
    println!(
        "| run | as published | published degrees, the rest free | ours | configurations of other kinds before it | ours |"
    );
    println!("|---|---|---|---|---|---|");
    for run in PUBLISHED {
        let estimator = Estimator::new();
        let request = (run.request)();
        let theirs =
            meshwright::estimator::EstimateRequest { gpus: Some(request.gpus), ..request.under(run.parallel.into()) };
        let theirs = estimator.estimate(&theirs).ok();
        let fitted = best(&estimator, &PlanRequest { pin: run.degrees.into(), top: 1, ..request.clone() });
        let found = find(&estimator, &PlanRequest { top: 20, deadline: Some(MOST_SECONDS), ..request }, &|_| {}).ok();
        let ours = found.as_ref().and_then(|found| found.best.first());
        let seconds = |report: &EstimateReport| report.predicted.step_time_s;
        let before = found.as_ref().map_or(0, |found| {
            found.best.iter().filter(|it| theirs.as_ref().is_some_and(|theirs| seconds(it) < seconds(theirs))).count()
        });
        let fits = theirs.as_ref().map_or("refused", |it| if it.predicted.fits { "" } else { " (does not fit)" });
        println!(
            "| {} | {}{fits} | {} | {} | {} | `{}` |",
            run.name,
            step(theirs.as_ref()),
            step(fitted.as_ref()),
            step(ours),
            if before == 20 { "20 or more".to_string() } else { before.to_string() },
            ours.map_or_else(String::new, short),
        );
    }
}

fn playbook() {
    println!("\n| model | H100 | by the procedure | | planned | | slower by |");
    println!("|---|---|---|---|---|---|---|");
    for (model, billions) in [("playbook-1b", 1.3), ("playbook-8b", 8.9), ("playbook-80b", 80.0)] {
        let estimator = Estimator::new();
        for gpus in [8, 64, 512, 1024] {
            let request = on("nanotron-2024", "bf16", PlanRequest::new(model, "h100", gpus, 4096, 256.max(gpus)));
            // The procedure has ZeRO-3, the stack has not.
            let request = PlanRequest { beyond_stack: true, ..request };
            let tried = recipe(billions, gpus);
            let tried = tried
                .iter()
                .filter_map(|pin| best(&estimator, &PlanRequest { pin: (*pin).into(), top: 1, ..request.clone() }));
            let seconds = |report: &EstimateReport| report.predicted.step_time_s;
            let theirs = tried.min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
            let ours = best(&estimator, &PlanRequest { top: 1, ..request });
            let slower = match (&theirs, &ours) {
                (Some(theirs), Some(ours)) => format!("{:.1} %", 100.0 * (seconds(theirs) / seconds(ours) - 1.0)),
                _ => String::new(),
            };
            let text = |report: &Option<EstimateReport>| report.as_ref().map_or_else(String::new, short);
            println!(
                "| {model} | {gpus} | {} | `{}` | {} | `{}` | {slower} |",
                step(theirs.as_ref()),
                text(&theirs),
                step(ours.as_ref()),
                text(&ours)
            );
        }
    }
}

fn times() {
    println!("\n| request | configurations | predicted | seconds | proved |");
    println!("|---|---|---|---|---|");
    let of = [
        ("llama3-8b", "h100", 8, 8192, 64, ""),
        ("llama3-8b", "h100", 64, 8192, 128, ""),
        ("llama3-8b", "h100", 512, 8192, 512, ""),
        ("llama3-8b", "h100", 512, 8192, 512, "cp=1"),
        ("llama3-8b", "h100", 512, 8192, 512, "cp=1,pp=1"),
        ("llama3-70b", "h100", 512, 8192, 512, ""),
        ("llama3.1-405b", "h100", 512, 8192, 512, ""),
        ("llama3.1-405b", "h100", 16384, 8192, 2048, ""),
        ("mixtral-8x7b", "h100", 64, 4096, 256, ""),
        ("deepseek-v3", "h800", 2048, 4096, 15360, ""),
    ];
    for (model, cluster, gpus, seq, batch, pin) in of {
        let request = PlanRequest {
            pin: pin.into(),
            deadline: Some(MOST_SECONDS),
            ..PlanRequest::new(model, cluster, gpus, seq, batch)
        };
        let began = Instant::now();
        let Ok(found) = find(&Estimator::new(), &request, &|_| {}) else { continue };
        let pin = if pin.is_empty() { String::new() } else { format!(", {pin}") };
        println!(
            "| {model}, {gpus}{pin} | {:.1e} | {} | {:.2} | {} |",
            found.search.space as f64,
            found.search.candidates,
            began.elapsed().as_secs_f64(),
            found.search.complete
        );
    }
}

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let tables: [(&str, fn()); 3] = [("times", times), ("published", published), ("playbook", playbook)];
    for (name, table) in tables {
        if wanted == name || !tables.iter().any(|(name, _)| *name == wanted) {
            table();
        }
    }
}
