//! Tests of contractions against nested loops in f64.

use super::super::testing::{assert_close, doubles, integers, normals};
use super::*;

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

fn check(eq: &str, dims: &dyn Fn(char) -> usize, par: Par) {
    let letters: Vec<Vec<char>> = eq.split([',', '>']).map(|s| s.trim().chars().collect()).collect();
    let sizes = |t: usize| letters[t].iter().map(|&l| dims(l)).collect::<Vec<_>>();
    let count = |t: usize| sizes(t).iter().product::<usize>();
    let plan = Einsum::new(&letters[0], &letters[1], &letters[2], &sizes(0), &sizes(1)).unwrap();
    let (a, b) = (normals(count(0), 1), normals(count(1), 2));
    let mut scratch = vec![f32::NAN; 5];
    let mut out = vec![f32::NAN; count(2)];
    let mut expected = vec![0.0; count(2)];
    naive([&letters[0], &letters[1], &letters[2]], dims, &doubles(&a), &doubles(&b), &mut expected);
    plan.run(&a, &b, &mut out, false, par, &mut scratch);
    assert_close(&out, &expected, 2e-4);
    plan.run(&a, &b, &mut out, true, par, &mut scratch);
    expected.iter_mut().for_each(|v| *v *= 2.0);
    assert_close(&out, &expected, 2e-4);
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
    for eq in EQUATIONS.iter().filter(|eq| !eq.contains("ijx") && !eq.starts_with("kij")) {
        check(eq, &large, Par(1));
        check(eq, &large, Par(3));
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
fn matrices_are_not_copied() {
    let dims = |letters: &str| letters.chars().map(|l| if l == 'g' { 2 } else { 64 }).collect::<Vec<_>>();
    for eq in ["bsh,hgd>bsgd", "bsgd,hgd>bsh", "bsh,bsgd>hgd", "gech,ehf>gecf", "gech,gecf>ehf"] {
        let parts: Vec<&str> = eq.split([',', '>']).collect();
        let letters: Vec<Vec<char>> = parts.iter().map(|p| p.chars().collect()).collect();
        let plan = Einsum::new(&letters[0], &letters[1], &letters[2], &dims(parts[0]), &dims(parts[1])).unwrap();
        assert!(plan.a.scratch() + plan.b.scratch() == 0 && plan.out.is_none(), "{eq}: {plan:?}");
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
