//! Random models on random meshes: `train` gives the losses and gradient norms of one device, or refuses with a reason.

use crate::cases::{Cases, Failure};
use crate::models;
use crate::process::{Folder, run};
use crate::random::Random;
use crate::seeds::{TEXT, text, words};
use serde_json::Value;
use std::fs;
use std::path::Path;

const CASES: u64 = 16;
/// The most that two meshes differ in a loss or a norm: sums of f32 in another order.
const TOLERANCE: f64 = 2e-3;
const SCHEDULES: [&str; 9] =
    ["gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-v", "zb-auto", "seq1f1b", "1f1b-v"];

#[test]
fn meshes() {
    Cases::asked(CASES).run("meshes", 2, |case| {
        let mut random = Random::new(case);
        let folder = Folder::new(&format!("fuzz-meshes-{case}"));
        fs::write(folder.path().join(TEXT), text()).unwrap();
        let model = models::random(&mut random);
        fs::write(folder.path().join("config.json"), model.to_string()).unwrap();
        let mesh = mesh(&mut random);
        match compared(folder.path(), &mesh) {
            Ok(word) => Ok(word),
            Err(why) => Err(Failure { why: format!("{model}\n{mesh}: {why}"), folder: Some(folder.keep()) }),
        }
    });
}

/// At most 16 devices.
fn mesh(random: &mut Random) -> String {
    let mut left: u64 = *random.pick(&[2, 4, 6, 8, 12, 16]);
    let mut items = Vec::new();
    for (axis, most) in [("tp", 4), ("pp", 4), ("cp", 4), ("dp", 16)] {
        let degrees: Vec<u64> = (1..=left.min(most)).filter(|degree| left.is_multiple_of(*degree)).collect();
        let degree = if axis == "dp" { left } else { *random.pick(&degrees) };
        left /= degree;
        if degree > 1 {
            items.push(format!("{axis}={degree}"));
        }
    }
    items.push(format!("cp_kind={}", random.pick(&["allgather", "ulysses", "ring"])));
    let mut option = |percent, item: String| {
        if random.chance(percent) {
            items.push(item);
        }
    };
    option(40, "sp=true".into());
    option(15, "ep=2".into());
    let stage = random.between(0, 3);
    items.push(format!("zero={stage}"));
    items.push(format!("recompute={}", random.pick(&["none", "full", "full:1", "selective:core_attn"])));
    items.push(format!("mbs={}", random.between(1, 2)));
    if items.iter().any(|item| item.starts_with("pp=")) {
        items.push(format!("schedule={}", random.pick(&SCHEDULES)));
    }
    items.join(",")
}

fn compared(folder: &Path, mesh: &str) -> Result<String, String> {
    let train = "train config.json --data text.txt --seq 12 --global-batch 24 --steps 2 --eval-batches 1";
    let one = run(folder, &words(&format!("{train} --parallel mbs=1 --out one")));
    one.judged()?;
    if one.code() != Some(0) {
        return Err(format!("one device: {}", one.stderr));
    }
    let many = run(folder, &words(&format!("{train} --parallel {mesh} --out many")));
    many.judged()?;
    if many.code() != Some(0) {
        return Ok(format!("refused: {}", many.error_code()));
    }
    let (one, many) = (figures(&folder.join("one/metrics.jsonl")), figures(&folder.join("many/metrics.jsonl")));
    if one.is_empty() || one.len() != many.len() {
        return Err(format!("{} figures against {}", many.len(), one.len()));
    }
    for ((name, expected), (_, found)) in one.iter().zip(&many) {
        let is_near = (expected - found).abs() <= TOLERANCE * expected.abs().max(1.0);
        if !is_near {
            return Err(format!("{name} is {found} where one device has {expected}"));
        }
    }
    Ok("equal".into())
}

/// Losses and norms in their order.
fn figures(path: &Path) -> Vec<(String, f64)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_default());
    let mut figures = Vec::new();
    for record in records {
        for name in ["loss", "grad_norm", "valid_loss"] {
            if let Some(figure) = record[name].as_f64() {
                figures.push((format!("{name} of step {}", record["step"]), figure));
            }
        }
    }
    figures
}
