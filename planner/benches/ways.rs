//! Benchmark of the search for the cheapest reshard path between two shardings of a tensor.
//!
//! `cargo bench -p meshwright-planner --bench ways` prints a line per pair: the median of many searches.

use cost::PROGRAM;
use ir::mesh::{Axes, Mesh};
use ir::types::{DType, Dims, PartialKind, Type};
use meshwright_planner::reshard::{Site, cheapest};
use std::hint::black_box;
use std::time::Instant;

/// Expert outputs before and after they return to their groups: the axes of each dim, then the axes of the partial sum.
const PAIRS: [[[&str; 6]; 2]; 6] = [
    [["x", "y", "", "", "", "z"], ["x", "y", "", "", "", ""]],
    [["", "", "x", "", "", "yz"], ["", "", "", "", "", ""]],
    [["", "", "x", "", "", "yz"], ["x", "y", "", "", "", ""]],
    [["w", "", "x", "", "", "yz"], ["wx", "y", "", "", "", ""]],
    [["x", "", "", "z", "yw", ""], ["yz", "", "x", "", "w", ""]],
    [["x", "y", "z", "", "w", ""], ["", "", "wzyx", "", "", ""]],
];

/// Samples, groups, experts, tokens of an expert, hidden.
const SIZES: [u64; 5] = [64, 2, 256, 64, 7168];

/// Searches of a pair.
const ROUNDS: usize = 200;

fn main() {
    let (mesh, dims) = (Mesh::new("m", &[("w", 4), ("x", 16), ("y", 2), ("z", 2)]), Dims::new());
    let site = Site::new(&mesh, &dims, &PROGRAM);
    for ends in PAIRS {
        let [from, to] = ends.map(|axes| lying(&mesh, axes));
        let mut seconds: Vec<f64> = (0..ROUNDS).map(|_| searched(&site, &from, &to)).collect();
        seconds.sort_by(f64::total_cmp);
        println!("{} to {}: {:.1} us", ends[0].join("|"), ends[1].join("|"), seconds[ROUNDS / 2] * 1e6);
    }
}

/// Type with these axes; each letter is one axis.
fn lying(mesh: &Mesh, places: [&str; 6]) -> Type {
    let [dims @ .., unreduced] = places.map(|axes| -> Axes {
        let names: Vec<String> = axes.chars().map(String::from).collect();
        names.iter().filter_map(|name| mesh.lookup(name)).flat_map(|axes| axes.as_slice().to_vec()).collect()
    });
    let mut ty = Type::of(DType::BF16, &SIZES).partial_over(PartialKind::Sum, &unreduced);
    for (dim, axes) in ty.dims.iter_mut().zip(dims) {
        dim.axes = axes;
    }
    ty
}

/// Seconds of one search.
fn searched(site: &Site<'_>, from: &Type, to: &Type) -> f64 {
    let clock = Instant::now();
    black_box(cheapest(site, black_box(from), to, &Axes::none())).expect("a way");
    clock.elapsed().as_secs_f64()
}
