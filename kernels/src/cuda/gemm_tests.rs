//! Tests of the descriptors, evaluated by cuBLASLt's definition, against the definition of the contraction.

use super::*;
use crate::cpu::testing::{assert_close, doubles, integers, normals};

/// `D = op(A) op(B)` as the descriptors say, element by element.
fn cublaslt(gemm: &Gemm, a: &[f64], b: &[f64], d: &mut [f64]) {
    let at = |matrix: &Matrix, batch: usize, row: usize, column: usize| {
        let (row, column) = if matrix.transposed { (column, row) } else { (row, column) };
        assert!(row < matrix.rows && column < matrix.columns && matrix.leading >= matrix.rows);
        batch * matrix.batch_stride + column * matrix.leading + row
    };
    for i in 0..gemm.batch {
        for column in 0..gemm.n {
            for row in 0..gemm.m {
                let terms = (0..gemm.k).map(|k| a[at(&gemm.a, i, row, k)] * b[at(&gemm.b, i, k, column)]);
                d[at(&gemm.d, i, row, column)] = terms.sum();
            }
        }
    }
}

/// The copy that an access describes.
fn gathered(access: &Option<Access>, x: &[f64]) -> Vec<f64> {
    match access {
        Some(Access::Strided(strides)) => (0..x.len()).map(|i| x[strides.at(i)]).collect(),
        _ => x.to_vec(),
    }
}

fn contract(plan: &Contraction, a: &[f64], b: &[f64]) -> Vec<f64> {
    let packed = [gathered(&plan.pack[0], a), gathered(&plan.pack[1], b)];
    let [left, right] = if plan.gemm.swapped { [1, 0] } else { [0, 1] };
    let mut d = vec![f64::NAN; plan.sizes[2]];
    cublaslt(&plan.gemm, &packed[left], &packed[right], &mut d);
    gathered(&plan.unpack, &d)
}

/// The contraction by nested loops over all letters.
fn by_definition(eq: [&[char]; 3], size: &dyn Fn(char) -> usize, a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut all = [eq[0], eq[1]].concat();
    all.sort_unstable();
    all.dedup();
    let index = |letters: &[char], at: &[usize]| {
        letters.iter().fold(0, |i, l| i * size(*l) + at[all.iter().position(|x| x == l).unwrap()])
    };
    let mut out = vec![0.0; eq[2].iter().map(|&l| size(l)).product()];
    for i in 0..all.iter().map(|&l| size(l)).product() {
        let mut rest = i;
        let mut at = vec![0; all.len()];
        for d in (0..all.len()).rev() {
            at[d] = rest % size(all[d]);
            rest /= size(all[d]);
        }
        out[index(eq[2], &at)] += a[index(eq[0], &at)] * b[index(eq[1], &at)];
    }
    out
}

type Planner = fn(&[char], &[char], &[char], &[usize], &[usize]) -> Result<Contraction, String>;

fn planned(eq: &str, size: &dyn Fn(char) -> usize, how: Planner) -> (Contraction, Vec<Vec<char>>) {
    let letters: Vec<Vec<char>> = eq.split([',', '>']).map(|part| part.chars().collect()).collect();
    let dims = |t: usize| letters[t].iter().map(|&l| size(l)).collect::<Vec<_>>();
    (how(&letters[0], &letters[1], &letters[2], &dims(0), &dims(1)).unwrap(), letters)
}

fn plan(eq: &str, size: &dyn Fn(char) -> usize) -> (Contraction, Vec<Vec<char>>) {
    planned(eq, size, Contraction::new)
}

fn check(eq: &str, size: &dyn Fn(char) -> usize) {
    check_planned(eq, size, Contraction::new);
    let Gemm { m, n, k, a, b, .. } = check_planned(eq, size, Contraction::by_terms).gemm;
    assert!([m, n, k].iter().any(|&size| size < 2) || a.transposed && !b.transposed, "{eq}");
}

fn check_planned(eq: &str, size: &dyn Fn(char) -> usize, how: Planner) -> Contraction {
    let (plan, letters) = planned(eq, size, how);
    let numbers = |t: usize| doubles(&normals(letters[t].iter().map(|&l| size(l)).product(), t as u32));
    let (a, b) = (numbers(0), numbers(1));
    let got: Vec<f32> = contract(&plan, &a, &b).iter().map(|&x| x as f32).collect();
    let want = by_definition([&letters[0], &letters[1], &letters[2]], size, &a, &b);
    assert_close(&got, &want, 1e-5);
    let terms: usize =
        letters.concat().iter().collect::<std::collections::BTreeSet<_>>().iter().map(|l| size(**l)).product();
    assert_eq!(plan.gemm.flops(), 2 * terms as u64, "{eq}");
    plan
}

const EQUATIONS: &[&str] = &[
    "mk,kn>mn",
    "mk,nk>mn",
    "km,kn>mn",
    "km,nk>mn",
    "mk,kn>nm",
    "km,kn>nm",
    "bmk,bkn>bmn",
    "bkm,bnk>bnm",
    "bsh,hgrd>bsgrd",
    "bsgrd,hgrd>bsh",
    "bsh,bsgrd>hgrd",
    "bsgrd,hgrd>hsb",
    "bsgrd,btgd>bgrst",
    "bgrst,btgd>bsgrd",
    "gech,ehf>gecf",
    "gech,gecf>ehf",
    "k,k>",
    "m,n>mn",
    "m,n>nm",
    "mk,k>m",
    "k,kn>n",
    "bsh,bsh>bs",
    "bsh,bsh>h",
    "bsh,bs>h",
    "bsh,h>bsh",
    "mxk,kyn>nm",
    ",m>m",
];

#[test]
fn descriptors_compute_the_contraction() {
    let prime = |l: char| match l {
        'b' | 'g' => 2,
        'r' | 'e' => 3,
        'd' => 5,
        's' | 'h' | 'm' => 7,
        'x' | 'y' => 1,
        _ => 4,
    };
    for eq in EQUATIONS {
        check(eq, &prime);
    }
}

#[test]
fn sizes_of_one_and_none() {
    for seed in 0..30 {
        let sizes = integers(128, seed, 0, 4);
        for eq in EQUATIONS {
            check(eq, &|l| if "xy".contains(l) { 1 } else { sizes[l as usize] as usize });
        }
    }
}

#[test]
fn row_major_matrices_are_column_major_ones_with_the_operands_swapped() {
    let size = |l: char| [('m', 3), ('k', 4), ('n', 5)].iter().find(|x| x.0 == l).map_or(1, |x| x.1);
    let matrix = |rows, columns, leading, transposed| Matrix { rows, columns, leading, batch_stride: 1, transposed };
    let (forward, _) = plan("mk,kn>mn", &size);
    let gemm = forward.gemm;
    assert_eq!((gemm.m, gemm.n, gemm.k, gemm.batch, gemm.swapped), (5, 3, 4, 1, true));
    assert_eq!([gemm.a, gemm.b, gemm.d], [matrix(5, 4, 5, false), matrix(4, 3, 4, false), matrix(5, 3, 5, false)]);
    // The second operand transposed.
    assert_eq!(plan("mk,nk>mn", &size).0.gemm.a, matrix(4, 5, 4, true));
    // A column-major result needs no swap.
    let (turned, _) = plan("mk,kn>nm", &size);
    assert!(!turned.gemm.swapped && turned.gemm.a.transposed && turned.gemm.b.transposed);
}

#[test]
fn the_matmuls_of_transformers_are_not_copied() {
    let size = |l: char| if "bg".contains(l) { 2 } else { 8 };
    for eq in ["bsh,hgrd>bsgrd", "bsgrd,hgrd>bsh", "bsh,bsgrd>hgrd", "bsh,hf>bsf", "bsf,bsh>fh", "gech,ehf>gecf"] {
        let (plan, _) = plan(eq, &size);
        let copies = plan.pack.iter().chain([&plan.unpack]).filter(|copy| copy.is_some()).count();
        assert_eq!(copies, usize::from(eq.starts_with("gech")) * 2, "{eq}: {plan:?}");
    }
}

#[test]
fn mistakes_are_reported() {
    let err = |a: &[char], b: &[char], out: &[char]| {
        Contraction::new(a, b, out, &vec![2; a.len()], &vec![3; b.len()]).unwrap_err()
    };
    assert!(err(&['a', 'a'], &['b'], &['a']).contains("twice"));
    assert!(err(&['a'], &['a'], &['a']).contains("size 2 and size 3"));
    assert!(err(&['a'], &['b'], &['c']).contains("neither"));
    assert!(err(&['a'], &['b'], &['b']).contains("label a is summed over one operand alone"));
    assert!(Contraction::new(&['a'], &[], &[], &[], &[]).unwrap_err().contains("1 labels for 0"));
}
