//! Small problems compared with exhaustive search under the same costs.

use super::*;
use cost::PROGRAM;
use ir::mesh::Mesh;
use ir::optimizer::Optimizer;
use ir::options::ParallelConfig;
use solver::Status;
use transforms::differentiate::differentiate;

/// A chain with a branch, with sizes that favour one sharding or the other.
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

/// Assignment problem of a model.
fn problem(model: &Model, microbatches: u32) -> Problem {
    let (ports, classes) = (Ports::new(model), Classes::of(model));
    let site = Site::new(&model.mesh, &model.dims, &PROGRAM);
    let weights = Weights::of(model, microbatches);
    let (all, mut prices) = (model.mesh.tensor_axes(), Prices::new(site));
    let turn = Turn::of(all.iter().map(Axes::one).collect(), &all);
    let zero = Axes::none();
    let task = Task { model, ports: &ports, classes: &classes, microbatches, zero: &zero };
    let mut builder = Builder::new(task, weights, &mut prices, &turn, None);
    builder.params(&Axes::none());
    for id in model.blocks.keys() {
        builder.block(id).unwrap();
    }
    builder.problem
}

/// Minimum cost of all feasible choices, by depth-first search pruned only by nonnegative costs.
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
            let ((found, _), wanted) = (solve(&problem, &Budget::default()), least(&problem));
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
    let options = PlanOptions::auto(ParallelConfig::default(), None, 2);
    let decided = decide(&mut model, &options, &PROGRAM, &mut |_| {}).unwrap().unwrap();
    assert!(decided.is_proved && decided.bound <= decided.seconds, "{decided:?}");
    assert!(model.is_fully_specified());
    let block = model.blocks.values().next().unwrap();
    assert_eq!(block.ty(block.find("y").unwrap()).dims[0].axes, mesh.tensor_axes(), "the batch is sharded");
    assert!(model.params.values().all(|param| param.ty.sharded_axes().is_empty()), "the weight is unsharded");
}

/// An einsum whose operands shard its contracted factors in conflict, and whose result is open.
fn conflict(rng: &mut u64, axes: usize) -> Model {
    let mut draw = |below: u64| {
        *rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*rng >> 33) % below
    };
    let sizes: Vec<(String, u64)> = (0..axes).map(|axis| (format!("x{axis}"), 2)).collect();
    let letters = ["a", "b", "c", "d"];
    let dims: Vec<String> = letters.iter().map(|letter| format!("{letter}={}", 16 << (2 * draw(3)))).collect();
    let mut sharded = |names: [&str; 3]| -> String {
        let mut cut: Vec<Vec<&str>> = vec![Vec::new(); 3];
        for (axis, _) in &sizes {
            let at = draw(4) as usize;
            cut.get_mut(at).into_iter().for_each(|axes| axes.push(axis));
        }
        let dim = |(name, axes): (&&str, &Vec<&str>)| match axes.is_empty() {
            true => (*name).to_string(),
            false => format!("{name}{{{}}}", axes.join(",")),
        };
        names.iter().zip(&cut).map(dim).collect::<Vec<_>>().join(", ")
    };
    let (left, right) = (sharded(["a", "c", "b"]), sharded(["c", "b", "d"]));
    let mesh: Vec<String> = sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
    let text = format!(
        "mesh @m = [{}]\ndims [{}]\nmodel @t(%p: input f32[{left}], %q: input f32[{right}]) {{\n %z = call @b(%p, %q)\n}}\n\
         block @b(%p: input f32[{left}], %q: input f32[{right}]) -> f32[a{{?}}, d{{?}}] {{\n\
         %y: f32[a{{?}}, c{{?}}, d{{?}}] = einsum(%p, %q, eq=\"a c b, c b d -> a c d\")\n\
         %g: f32[a{{?}}, c{{?}}, d{{?}}] = gelu(%y)\n %z: f32[a{{?}}, d{{?}}] = reduce_sum(%g, eq=\"a c d -> a d\")\n\
         return %z\n}}",
        mesh.join(", "),
        dims.join(", ")
    );
    let model = ir::text::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}")).model;
    differentiate(model, &Optimizer::default()).unwrap()
}

#[test]
fn turns_find_nearly_what_all_axes_at_once_do() {
    let (mut rng, mut worst, mut sum, mut cases) = (7, 0.0f64, 0.0, 0);
    for axes in [3, 4] {
        for _ in 0..6 {
            let model = conflict(&mut rng, axes);
            let (ports, classes) = (Ports::new(&model), Classes::of(&model));
            let zero = Axes::none();
            let task = Task { model: &model, ports: &ports, classes: &classes, microbatches: 1, zero: &zero };
            let site = Site::new(&model.mesh, &model.dims, &PROGRAM);
            let options = PlanOptions::auto(ParallelConfig::default(), None, 1);
            let rules = || propagated(&model, &options, &PROGRAM, &ports, &classes);
            let search = |pairs: f64| {
                let prices = Prices::new(site);
                let watch: &mut Watch<'_> = &mut |_| {};
                let search = Search {
                    task: &task,
                    prices,
                    limit: u64::MAX,
                    end: Deadline::after(None),
                    watch,
                    best: None,
                    spent: 0,
                    most: pairs,
                };
                let (found, bound) = search.run(rules()).unwrap();
                (found.unwrap().solution.cost, bound)
            };
            let (least, proved) = search(f64::INFINITY);
            assert!(least - proved <= 1e-8 * least, "all axes at once are not proved: {proved} of {least}");
            let (turns, bound) = search(sizes::pairs(&model, 2));
            assert!(bound <= least * (1.0 + 1e-9), "a bound of {bound} above {least}");
            assert!(turns >= least * (1.0 - 1e-9));
            let stay = Turn::of(Vec::new(), &model.mesh.tensor_axes());
            let start = task.solve(&mut Prices::new(site), &stay, rules().as_ref(), u64::MAX, &Budget::default());
            let start = start.unwrap().expect("the rules lead to an answer").solution.cost;
            assert!(turns <= start * (1.0 + 1e-9), "{turns}, and {start} by the rules");
            println!("{axes} axes: {:.4} of the least, bound {:.4}", turns / least, bound / least);
            (worst, sum, cases) = (worst.max(turns / least), sum + turns / least, cases + 1);
        }
    }
    println!("worst {worst}, mean {}", sum / f64::from(cases));
    assert!(worst <= 1.15 && sum / f64::from(cases) <= 1.015, "worst {worst}, mean {}", sum / f64::from(cases));
}
