//! Random graph x mesh x sharding x schedule: the compiled program equals the reference evaluator.

mod coverage;
mod generate;
mod graph;
mod narrow;
mod run;
mod sliced;

use crate::seeds::cases;
use cost::{CPU, Cluster, PROGRAM, Platform};
use ir::fused::Fused;
use ir::graph::{Model, SectionKind};
use ir::options::{ParallelConfig, PlanOptions, Quantisation, Scales};
use ir::program::BodyInstr;
use ir::text::File;
use ir::types::DType;
use std::collections::BTreeSet;

/// `MESHWRIGHT_CASES=5000 MESHWRIGHT_FIRST=500 cargo test --test programs equal` runs other cases.
#[test]
fn compiled_programs_equal_the_reference() {
    let seeds = cases(180, 560);
    let cases = seeds.end - seeds.start;
    let (mut failed, mut ill_conditioned) = (Vec::new(), 0);
    let mut coverage = coverage::Coverage::default();
    for seed in seeds {
        let case = generate::generate(seed);
        let outcome = run::compiled(&case).and_then(|(meaning, file)| {
            let outcome = run::compare(&case, &meaning, &file)?;
            if outcome == run::Outcome::Equal {
                coverage.count(&file.model, &case.pipeline);
            }
            Ok(outcome)
        });
        match outcome {
            Ok(outcome) => ill_conditioned += u64::from(outcome == run::Outcome::IllConditioned),
            Err(why) => failed.push(format!("seed {seed}: {why}")),
        }
    }
    assert!(failed.is_empty(), "{} of {cases} cases failed:\n{}", failed.len(), failed.join("\n"));
    assert!(ill_conditioned * 20 <= cases, "{ill_conditioned} of {cases} cases say nothing");
    let gaps = coverage.gaps();
    assert!(gaps.is_empty(), "the cases cover too little:\n{}", gaps.join("\n"));
}

/// Devices and links of any speed, so that any sharding may be the cheapest.
fn cluster(seed: u64) -> Cluster {
    let mut random = crate::random::Random::new(seed ^ 0xc057);
    let mut cluster = CPU.clone();
    let mut factor = || [1e-3, 0.1, 1.0, 10.0, 1e3][random.below(5)];
    cluster.device.flops_f32 *= factor();
    cluster.device.memory_bandwidth *= factor();
    cluster.links[0].bandwidth *= factor();
    cluster.links[0].latency *= factor();
    cluster
}

/// A case sharded by cost, in so little memory that parameters must be cut if they can be; gives whether that was possible.
fn sharded(case: &generate::Case) -> Result<(Model, File, bool), String> {
    let parallel = ParallelConfig { zero: case.zero, ..ParallelConfig::default() };
    let within = |memory| {
        let options = PlanOptions::auto(parallel.clone(), memory, case.pipeline.microbatches);
        run::compiled_to(case, options, &Platform::of_program(&cluster(case.seed)), true)
    };
    // Parameters and gradients in f32 and half of what AdamW has; of the rest as much as that.
    let tight = 20 * case.model.parameter_count();
    match within(Some(tight)) {
        Ok((meaning, file)) => Ok((meaning, file, true)),
        Err(why) if why.contains("every sharding needs") => within(None).map(|(meaning, file)| (meaning, file, false)),
        Err(why) => Err(why),
    }
}

#[test]
fn shardings_found_by_cost_equal_the_reference() {
    let seeds = cases(20, 60);
    let cases = seeds.end - seeds.start;
    let (mut failed, mut cut, mut tight) = (Vec::new(), 0, 0);
    for case in seeds.map(generate::generate) {
        let outcome = sharded(&case).and_then(|(meaning, file, is_tight)| {
            let mut values = file.model.blocks.values().flat_map(|block| block.values.values());
            cut += usize::from(values.any(|value| !value.ty.sharded_axes().is_empty()));
            tight += usize::from(is_tight);
            run::compare(&case, &meaning, &file)
        });
        failed.extend(outcome.err().map(|why| format!("seed {}: {why}", case.seed)));
    }
    assert!(failed.is_empty(), "{} of {cases} cases failed:\n{}", failed.len(), failed.join("\n"));
    assert!(
        cut * 2 >= cases as usize && tight * 8 >= cases as usize,
        "of {cases} {cut} were cut, {tight} in less memory"
    );
}

#[test]
fn slices_equal_the_whole_sequence() {
    let seeds = cases(20, 70);
    let cases = seeds.end - seeds.start;
    let (mut failed, mut attending, mut dropping) = (Vec::new(), 0, 0);
    for case in seeds.map(|seed| sliced::generate(DType::F32, seed)) {
        match run::compiled(&case).and_then(|(meaning, file)| Ok((run::compare(&case, &meaning, &file)?, file))) {
            Ok((run::Outcome::Equal, file)) => {
                let stmts = file.model.blocks.values().flat_map(|block| &block[SectionKind::F].stmts);
                let names: Vec<&str> = stmts.map(|stmt| stmt.op.name()).collect();
                attending += usize::from(names.contains(&"attention"));
                dropping += usize::from(names.contains(&"dropout"));
            }
            Ok((run::Outcome::IllConditioned, _)) => {}
            Err(why) => failed.push(format!("seed {}: {why}", case.seed)),
        }
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
    assert!(attending * 2 >= cases as usize && dropping * 4 >= cases as usize, "{attending}, {dropping} of {cases}");
}

/// A case in bf16, f16, or with 8-bit operands: in blocks, or as whole tensors, where every third is scaled by earlier steps. Of
/// those with 8-bit operands every second has activations in f32.
fn narrow_case(seed: u64) -> generate::Case {
    let (kind, round) = (seed % 4, seed / 4);
    let dtype = [DType::BF16, DType::F16, [DType::BF16, DType::F32][round as usize % 2]][kind.min(2) as usize];
    match kind {
        0 | 1 if round % 4 == 3 => sliced::generate(dtype, seed),
        0 | 1 => generate::generate_in(dtype, seed),
        kind => {
            let blocks = Quantisation { scales: Scales::Blocks(3), cotangents: DType::F8E4M3 };
            let scales = if round % 3 == 2 { Scales::Delayed(16) } else { Scales::Tensor };
            let tensors = Quantisation { scales, cotangents: DType::F8E5M2 };
            let quantisation = Some(if kind == 2 { blocks } else { tensors });
            generate::Case { quantisation, ..generate::generate_in(dtype, seed) }
        }
    }
}

#[test]
fn narrow_programs_equal_the_reference() {
    let seeds = cases(40, 200);
    let cases = seeds.end - seeds.start;
    let (mut failed, mut compared, mut quantised) = (Vec::new(), [0; 4], [0; 2]);
    for seed in seeds {
        let case = narrow_case(seed);
        let outcome = run::compiled(&case).and_then(|(meaning, file)| {
            let stmts = || meaning.blocks.values().flat_map(|block| &block[SectionKind::F].stmts);
            let products = stmts().filter(|stmt| stmt.op.name() == "quantise").count();
            Ok((products, narrow::compare(&case, &meaning, &file)?))
        });
        match outcome {
            Ok((products, run::Outcome::Equal)) => {
                compared[seed as usize % 4] += 1;
                quantised[seed as usize % 2] += u64::from(seed % 4 >= 2 && products > 0);
            }
            Ok((_, run::Outcome::IllConditioned)) => {}
            Err(why) => failed.push(format!("seed {seed}, {}: {why}", case.sizes.dtype.name())),
        }
    }
    assert!(failed.is_empty(), "{} of {cases} cases failed:\n{}", failed.len(), failed.join("\n"));
    assert!(compared.iter().all(|&count| count * 20 >= cases), "{compared:?} of {cases}: bf16, f16, blocks, tensors");
    assert!(quantised.iter().all(|&count| count * 20 >= cases), "{quantised:?} of {cases} have 8-bit operands");
}

/// The bits of results. Which of two NaNs an operation gives is the processor's choice.
fn bits(results: &narrow::Results) -> Vec<(String, Vec<u64>)> {
    let bits = |x: &f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
    results.iter().map(|(name, data)| (name.clone(), data.iter().map(bits).collect())).collect()
}

/// `MESHWRIGHT_CASES=200 cargo test --test programs equal::processes` runs more seeds, of cases and of the wire.
#[test]
fn processes_change_no_bit() {
    let seeds = cases(12, 40);
    let cases = seeds.end - seeds.start;
    let (mut failed, mut far) = (Vec::new(), 0);
    for seed in seeds {
        let case = match seed % 6 {
            kind @ 0..4 => narrow_case(4 * (seed / 6) + kind),
            4 => sliced::generate(DType::F32, seed),
            _ => generate::generate(seed),
        };
        let outcome = run::compiled(&case).and_then(|(_, file)| {
            far += u64::from(file.model.mesh.devices() > 1);
            let several = 2 + seed as usize / 4 % 3;
            let run = |processes| narrow::program_in(Some(processes), &case, &file, 1.0).map(|results| bits(&results));
            let (one, several) = (run(1)?, run(several)?);
            let different = one.into_iter().zip(several).find(|(one, several)| one != several);
            different.map_or(Ok(()), |((name, _), _)| Err(format!("{name} differs")))
        });
        failed.extend(outcome.err().map(|why| format!("seed {seed}: {why}")));
    }
    assert!(failed.is_empty(), "{} of {cases} cases failed:\n{}", failed.len(), failed.join("\n"));
    assert!(far * 2 >= cases, "{far} of {cases} cases have several ranks");
}

/// The groups of a compiled file.
fn groups(file: &File) -> impl Iterator<Item = &Fused> {
    let instrs = file.program.iter().flat_map(|program| program.bodies.values()).flat_map(|body| &body.instrs);
    instrs.filter_map(|instr| if let BodyInstr::Fused(fused) = instr { Some(fused) } else { None })
}

/// The results of a case with groups and without, and the names of the ops in groups.
fn fused_and_not(case: &generate::Case) -> Result<([narrow::Results; 2], Vec<&'static str>), String> {
    let compiled = |fusion| run::compiled_to(case, run::along_rules(case), &PROGRAM, fusion);
    let (fused, not) = (compiled(true)?.1, compiled(false)?.1);
    if groups(&not).next().is_some() {
        return Err("there are groups without fusion".to_string());
    }
    let names = groups(&fused).flat_map(|fused| &fused.stmts).map(|stmt| stmt.op.name()).collect();
    Ok(([narrow::program(case, &fused, 1.0)?, narrow::program(case, &not, 1.0)?], names))
}

#[test]
fn groups_change_no_bit() {
    let seeds = cases(20, 70);
    let cases = seeds.end - seeds.start;
    let (mut failed, mut grouping, mut grouped) = (Vec::new(), 0, BTreeSet::new());
    for seed in seeds {
        let case = match seed % 4 {
            0 => narrow_case(seed),
            1 => sliced::generate(DType::F32, seed),
            _ => generate::generate(seed),
        };
        match fused_and_not(&case) {
            Ok(([fused, not], names)) => {
                let different = bits(&fused).into_iter().zip(bits(&not)).find(|(fused, not)| fused != not);
                failed.extend(different.map(|((name, _), _)| format!("seed {seed}: {name} differs")));
                grouping += u64::from(!names.is_empty());
                grouped.extend(names);
            }
            Err(why) => failed.push(format!("seed {seed}: {why}")),
        }
    }
    assert!(failed.is_empty(), "{} of {cases} cases failed:\n{}", failed.len(), failed.join("\n"));
    assert!(grouping * 3 >= cases * 2, "{grouping} of {cases} cases have groups");
    assert!(grouped.len() >= 20, "groups have only {grouped:?}");
}
