//! Tests of contractions against nested loops in f64.

use super::super::testing::sample::sampled;
use super::super::testing::{Stored, assert_close, doubles, integers, normals};
use super::*;
use crate::cpu::gemm::multiplies_pairs;
use crate::cpu::narrow::{Narrow, round};

/// The contraction by definition, in double precision.
fn naive(eq: [&[char]; 3], dims: &dyn Fn(char) -> usize, a: &[f64], b: &[f64], out: &mut [f64]) {
    let mut all: Vec<char> = eq.concat();
    all.sort_unstable();
    all.dedup();
    let sizes: Vec<usize> = all.iter().map(|&l| dims(l)).collect();
    let index = |letters: &[char], at: &[usize]| {
        letters.iter().fold(0, |i, l| i * dims(*l) + at[all.iter().position(|x| x == l).unwrap()])
    };
    for i in 0..sizes.iter().product() {
        let mut rest = i;
        let mut at = vec![0; all.len()];
        for d in (0..all.len()).rev() {
            at[d] = rest % sizes[d];
            rest /= sizes[d];
        }
        out[index(eq[2], &at)] += a[index(eq[0], &at)] * b[index(eq[1], &at)];
    }
}

/// The letters of both operands and of the result.
fn letters(eq: &str) -> [Vec<char>; 3] {
    let mut parts = eq.split([',', '>']);
    [(); 3].map(|()| parts.next().unwrap().chars().collect())
}

/// The plan, and the number of elements of both operands and of the result.
fn plan(eq: &str, dims: &dyn Fn(char) -> usize) -> (Einsum, [usize; 3]) {
    let letters = letters(eq);
    let sizes = letters.each_ref().map(|letters| letters.iter().map(|&l| dims(l)).collect::<Vec<_>>());
    let plan = Einsum::new(&letters[0], &letters[1], &letters[2], &sizes[0], &sizes[1]).unwrap();
    (plan, sizes.map(|sizes| sizes.iter().product()))
}

fn check(eq: &str, dims: &dyn Fn(char) -> usize, par: Par) {
    let (plan, count) = plan(eq, dims);
    let (a, b) = (normals(count[0], 1), normals(count[1], 2));
    let mut scratch = vec![f32::NAN; 5];
    let mut out = vec![f32::NAN; count[2]];
    let mut expected = vec![0.0; count[2]];
    let letters = letters(eq);
    naive([&letters[0], &letters[1], &letters[2]], dims, &doubles(&a), &doubles(&b), &mut expected);
    plan.run(&a, &b, &mut out, false, par, &mut scratch);
    assert_close(&out, &expected, 2e-4);
    plan.run(&a, &b, &mut out, true, par, &mut scratch);
    expected.iter_mut().for_each(|v| *v *= 2.0);
    assert_close(&out, &expected, 2e-4);
}

/// Runs a contraction on stored operands and on their numbers, and compares the results: their bits, unless the processor
/// multiplies pairs.
fn check_narrow(eq: &str, dims: &dyn Fn(char) -> usize, formats: [Option<Narrow>; 2], par: Par) {
    let (plan, count) = plan(eq, dims);
    let [a, b] = [0, 1].map(|t| Stored::new(formats[t], &normals(count[t], t as u32)));
    let [mut narrow, mut wide] = [(); 2].map(|()| normals(count[2], 3));
    let mut scratch = vec![];
    for accumulate in [true, false] {
        plan.run(a.floats(), b.floats(), &mut narrow, accumulate, par, &mut scratch);
        plan.run(&a.numbers, &b.numbers, &mut wide, accumulate, par, &mut scratch);
        if formats == [Some(Narrow::Bf16); 2] && multiplies_pairs() {
            assert_close(&narrow, &doubles(&wide), 2e-4);
        } else {
            assert!(
                narrow.iter().zip(&wide).all(|(x, y)| x.to_bits() == y.to_bits()),
                "{eq} of {formats:?} on {par:?}"
            );
        }
    }
    // A rounded result is the result, rounded.
    if plan.can_round() {
        let [mut rounded, mut want] = [(); 2].map(|()| vec![0xaa; 2 * count[2]]);
        plan.run_rounded(a.floats(), b.floats(), (Narrow::Bf16, &mut rounded), par, &mut scratch);
        round(Narrow::Bf16, &narrow, &mut want, par);
        assert!(rounded == want, "{eq} of {formats:?} on {par:?}, rounded");
    }
}

const EQUATIONS: &[&str] = &[
    "mk,kn>mn",
    "mk,nk>mn",
    "km,kn>nm",
    "bsh,hgrd>bsgrd",
    "bsgrd,hgrd>bsh",
    "bsh,bsgrd>hgrd",
    "bsgrd,hgrd>hsb",
    "bsgrd,btgd>bgrst",
    "bgrst,btgd>bsgrd",
    "bgrst,bsgrd>btgd",
    "gech,ehf>gecf",
    "gecf,ehf>gech",
    "gech,gecf>ehf",
    "gech,gecf>hfe",
    "kij,jxki>x",
    "k,k>",
    "m,n>mn",
    "m,n>nm",
    "bsh,h>bsh",
    "bsh,bsh>bs",
    "bsh,bsh>h",
    "bsh,bs>h",
    "bmk,bn>nb",
    "mxk,kyn>nm",
    ",m>m",
    ",>",
];

#[test]
fn equations_of_every_kind() {
    let prime = |l: char| match l {
        'b' | 'g' => 2,
        'r' | 'e' => 3,
        'd' | 'x' => 5,
        's' | 'h' | 'm' => 7,
        _ => 11,
    };
    for eq in EQUATIONS {
        check(eq, &prime, Par(1));
    }
}

#[test]
fn large_dimensions_and_threads() {
    let large = |l: char| match l {
        'b' | 'g' | 'r' | 'e' | 'y' | 'd' => 2,
        's' | 'c' | 'm' => 51,
        _ => 67,
    };
    let equations = EQUATIONS.iter().filter(|eq| !eq.contains("ijx") && !eq.starts_with("kij"));
    for (number, eq) in equations.enumerate() {
        // A sample has every second equation on one thread, and the others on three.
        for threads in [1, 3].into_iter().skip(sampled(number % 2, 0)).take(sampled(1, 2)) {
            check(eq, &large, Par(threads));
        }
    }
}

#[test]
fn random_sizes_with_ones_and_zeros() {
    for seed in 0..40 {
        let sizes = integers(256, seed, 0, 5);
        for eq in EQUATIONS {
            check(eq, &|l| sizes[l as usize % 256] as usize, Par(1));
        }
    }
}

#[test]
fn narrow_operands_give_the_bits_of_their_numbers() {
    let mixes = Stored::mixes();
    for (seed, &formats) in mixes.iter().enumerate() {
        let sizes = integers(256, seed as u32, 1, 7);
        for eq in EQUATIONS {
            check_narrow(eq, &|l| sizes[l as usize % 256] as usize, formats, Par(1));
        }
        // Beyond the blocks of a product in one dimension or in all of them.
        for [m, n, k] in [[1, 70, 300], [70, 1, 300], [5, 300, 40], [77, 35, 301], [61, 261, 290]] {
            let size = |l| [m, n, k]["mnk".find(l).unwrap()];
            for eq in ["mk,kn>mn", "km,kn>mn", "mk,nk>mn", "km,nk>mn", "mk,kn>nm"] {
                // A sample has one of the numbers of threads for each mix and size.
                let threads = (1..=2).skip(sampled((seed + m) % 2, 0)).take(sampled(1, 2));
                threads.for_each(|threads| check_narrow(eq, &size, formats, Par(threads)));
            }
        }
    }
}

#[test]
fn products_of_models_are_rounded_row_by_row() {
    for eq in ["bsh,hgd>bsgd", "bsgd,hgd>bsh", "gech,ehf>gecf", "mk,kn>nm"] {
        assert!(plan(eq, &|l| if l == 'g' { 2 } else { 64 }).0.can_round(), "{eq}");
    }
    // Rows are finished strip by strip, and a row of the result may be longer than a run.
    for [m, n, k] in [[5000, 600, 3], [600, 5000, 3]] {
        let size = |l| [m, n, k]["mnk".find(l).unwrap()];
        for eq in ["mk,kn>mn", "mk,kn>nm"] {
            check_narrow(eq, &size, [Some(Narrow::Bf16), None], Par(2));
        }
    }
}

/// Experts have few rows of each group next to each other: tokens and results are copied.
#[test]
fn narrow_operands_are_copied_as_they_are() {
    let size = |l| match l {
        'g' => 30,
        'c' => 16,
        'e' => 3,
        _ => 70,
    };
    for eq in ["gech,ehf>gecf", "gech,gecf>ehf"] {
        let (plan, count) = plan(eq, &size);
        let tokens = Stored::new(Some(Narrow::Bf16), &vec![0.0; count[0]]);
        let mut scratch = vec![0.0; plan.a.scratch(tokens.floats(), false)];
        let copied = plan.a.prepare(tokens.floats(), false, &mut &mut scratch[..], Par(1));
        let Floats::Narrow(_, copied) = copied else { panic!("{eq}: a copy in f32") };
        assert!(plan.a.packing.is_some() && copied.len() == 2 * count[0], "{eq}: {plan:?}");
        for formats in Stored::mixes() {
            (1..=2).for_each(|threads| check_narrow(eq, &size, formats, Par(threads)));
        }
    }
    assert!(plan("gech,ehf>gecf", &size).0.can_round());
}

#[test]
fn an_empty_contraction_leaves_what_was_there() {
    let plan = Einsum::new(&['m', 'k'], &['k', 'n'], &['m', 'n'], &[2, 0], &[0, 2]).unwrap();
    let mut out = [1.0, 2.0, 3.0, 4.0];
    plan.run(&[], &[], &mut out, true, Par(1), &mut vec![]);
    assert_eq!(out, [1.0, 2.0, 3.0, 4.0]);
    plan.run(&[], &[], &mut out, false, Par(1), &mut vec![]);
    assert_eq!(out, [0.0; 4]);
    assert_eq!(plan.flops(), 0);
}

#[test]
fn matrices_are_neither_copied_nor_widened() {
    for eq in ["bsh,hgd>bsgd", "bsgd,hgd>bsh", "bsh,bsgd>hgd", "gech,ehf>gecf", "gech,gecf>ehf"] {
        let (plan, count) = plan(eq, &|l| if l == 'g' { 2 } else { 64 });
        for format in [None, Some(Narrow::Bf16)] {
            let [a, b] = [0, 1].map(|t| Stored::new(format, &vec![0.0; count[t]]));
            let wide = plan.product.reads_wide();
            let scratch = plan.a.scratch(a.floats(), wide) + plan.b.scratch(b.floats(), wide);
            assert!(scratch == 0 && plan.out.is_none(), "{eq}: {plan:?}");
        }
    }
}

#[test]
fn mistakes_are_reported() {
    let err = |a: &[char], b: &[char], out: &[char]| {
        Einsum::new(a, b, out, &vec![2; a.len()], &vec![3; b.len()]).unwrap_err()
    };
    assert!(err(&['a', 'a'], &['b'], &['a']).contains("twice"));
    assert!(err(&['a'], &['a'], &['a']).contains("size 2 and size 3"));
    assert!(err(&['a'], &['b'], &['c']).contains("neither"));
    assert!(Einsum::new(&['a'], &[], &[], &[], &[]).unwrap_err().contains("1 labels for 0"));
}
