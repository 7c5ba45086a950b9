//! Small problems against all choices, priced by the same costs.

use super::*;
use cost::CPU;
use ir::differentiate::differentiate;
use ir::goal::Layout;
use ir::mesh::Mesh;
use ir::optimizer::Optimizer;

/// A chain with a branch, of sizes that make now the one and now the other cut cheap.
fn chain(b: u64, h: u64, f: u64, mesh: &Mesh) -> Model {
    let text = format!(
        "dims [b={b}, h={h}, f={f}]\nparam %w: f32[h, f]\nmodel @m(%x: input f32[b, h]) {{\n call @net(%x; %w)\n}}\n\
         block @net(%x: input f32[b, h]; %w: param f32[h, f]) -> loss f32[] {{\n\
         %y: f32[b, f] = einsum(%x, %w, eq=\"b h, h f -> b f\")\n\
         %l: f32[] = reduce_sum(%y, eq=\"b f ->\")\n return %l\n}}"
    );
    let mut model = differentiate(ir::text::parse(&text).unwrap().model, &Optimizer::default()).unwrap();
    model.mesh = mesh.clone();
    model.has_mesh = true;
    let params = model.params.values_mut().map(|param| &mut param.ty);
    let inputs = model.inputs.iter_mut().map(|input| &mut input.ty);
    let values = model.blocks.values_mut().flat_map(|block| block.values.values_mut()).map(|data| &mut data.ty);
    params.chain(inputs).chain(values).flat_map(|ty| &mut ty.dims).for_each(|dim| dim.open = true);
    model
}

/// The problem of a model.
fn problem(model: &Model, microbatches: u32) -> Problem {
    let (ports, classes) = (Ports::new(model), Classes::of(model));
    let site = Site { mesh: &model.mesh, dims: &model.dims, cluster: &CPU };
    let weights = Weights::of(model, microbatches);
    let mut builder = Builder::new(model, &ports, &classes, weights, Prices::new(site));
    builder.params(&Axes::none());
    for id in model.blocks.keys() {
        builder.block(id).unwrap();
    }
    builder.problem
}

/// The least cost of all choices that fit, by depth first search without bounds but that costs are not negative.
fn least(problem: &Problem) -> f64 {
    fn follow(problem: &Problem, chosen: &mut Vec<usize>, so_far: f64, least: &mut f64) {
        let node = chosen.len();
        if so_far >= *least {
            return;
        }
        if node == problem.costs.len() {
            let ticks = problem.loads.iter().map(|load| load.when.end).max().unwrap_or(0);
            let held = |tick: u32| -> u64 {
                let live = problem.loads.iter().filter(|load| load.when.contains(&tick));
                live.map(|load| load.bytes[chosen[load.node]]).sum()
            };
            if (0..ticks).all(|tick| held(tick) <= problem.limit) {
                *least = so_far;
            }
            return;
        }
        for choice in 0..problem.costs[node].len() {
            let mut cost = so_far + problem.costs[node][choice];
            for (before, &other) in chosen.iter().enumerate() {
                if let Some(table) = problem.edges.get(&(before, node)) {
                    cost += table[other * problem.costs[node].len() + choice];
                }
            }
            chosen.push(choice);
            follow(problem, chosen, cost, least);
            chosen.pop();
        }
    }
    let mut cost = f64::INFINITY;
    follow(problem, &mut Vec::new(), 0.0, &mut cost);
    cost
}

#[test]
fn the_answer_is_the_least_of_all_choices() {
    let mesh = Mesh::new("m", &[("x", 2)]);
    for (b, h, f) in [(2, 2, 2), (512, 8, 8), (8, 512, 8), (8, 8, 512), (2, 512, 512), (3, 5, 7)] {
        let model = chain(b, h, f, &mesh);
        let mut problem = problem(&model, 2);
        for limit in [u64::MAX, (h * f * 16) * 3 / 4] {
            problem.limit = limit;
            let ((found, _), wanted) = (solve(&problem), least(&problem));
            let same = (found.cost - wanted).abs() <= 1e-6 * wanted;
            assert!(same || found.cost == wanted, "{b} {h} {f} in {limit}: {} instead of {wanted}", found.cost);
            assert_eq!(found.status == Status::Infeasible, wanted.is_infinite());
        }
    }
}

#[test]
fn what_is_chosen_is_written_down() {
    let mesh = Mesh::new("m", &[("x", 2)]);
    let mut model = chain(1 << 20, 1, 1, &mesh);
    let goal = Goal::auto(Layout::default(), None, 2);
    let decided = decide(&mut model, &goal, &CPU).unwrap().unwrap();
    assert!(decided.is_proved && decided.bound <= decided.seconds, "{decided:?}");
    assert!(model.is_settled());
    let block = model.blocks.values().next().unwrap();
    assert_eq!(block.ty(block.find("y").unwrap()).dims[0].axes, mesh.tensor_axes(), "the batch is cut");
    assert!(model.params.values().all(|param| param.ty.sharded_axes().is_empty()), "the weight is whole");
}
