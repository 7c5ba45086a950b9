//! Tests of elementwise kernels against f64.

use super::super::testing::{assert_close, doubles, normals};
use super::*;

#[path = "../../tests/extremes/exact.rs"]
mod exact;

const SIZES: [usize; 6] = [0, 1, 7, 33, 1000, 200_003];

#[test]
fn unary_functions() {
    for op in Unary::ALL {
        let positive = matches!(op, Unary::Log | Unary::Sqrt | Unary::Rsqrt);
        for n in SIZES {
            let mut x = normals(n, 3);
            if positive {
                x.iter_mut().for_each(|v| *v = v.abs());
            }
            let mut out = vec![f32::NAN; n];
            unary(op, &x, &mut out, Par(2));
            let expected: Vec<f64> = doubles(&x).into_iter().map(|x| exact::unary(op, x)).collect();
            assert_close(&out, &expected, 2e-6);
        }
    }
}

#[test]
fn activations_far_out() {
    for op in [Unary::Silu, Unary::Gelu, Unary::GeluErf] {
        let mut out = [f32::NAN; 2];
        unary(op, &[-200.0, 200.0], &mut out, Par(1));
        assert_eq!(out, [0.0, 200.0], "{op:?}");
    }
}

#[test]
fn binary_functions() {
    for op in Binary::ALL {
        for n in SIZES {
            let (a, b) = (normals(n, 4), normals(n, 5));
            let mut out = vec![f32::NAN; n];
            binary(op, &a, &b, &mut out, Par(2));
            let expected: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| exact::binary(op, a.into(), b.into())).collect();
            assert_close(&out, &expected, 2e-6);
        }
    }
}

#[test]
fn broadcasts() {
    let dims = [3, 4, 5];
    let strides = [[20, 5, 1], [0, 5, 1], [0, 0, 1], [4, 1, 0], [1, 3, 12], [0, 0, 0], [1, 0, 0]];
    for a_strides in strides {
        for b_strides in strides {
            let (a, b) = (normals(60, 6), normals(60, 7));
            let mut out = vec![f32::NAN; 60];
            let operands = (Strided((&a).into(), &a_strides), Strided((&b).into(), &b_strides));
            broadcast_binary(Binary::Sub, operands.0, operands.1, &mut out, &dims, Par(1));
            let mut expected = vec![];
            walk(&dims, [&a_strides, &b_strides], [0, 0], &mut |[i, j]| expected.push(a[i] - b[j]));
            assert_eq!(out, expected, "{a_strides:?} {b_strides:?}");
        }
    }
    let mut one = [0.0];
    broadcast_binary(Binary::Add, Strided((&[1.0]).into(), &[]), Strided((&[2.0]).into(), &[]), &mut one, &[], Par(1));
    assert_eq!(one, [3.0]);
    broadcast_binary(
        Binary::Add,
        Strided((&[]).into(), &[0, 1]),
        Strided((&[]).into(), &[5, 1]),
        &mut [],
        &[0, 5],
        Par(1),
    );
}

#[test]
fn broadcasts_on_threads() {
    let (rows, cols) = (300, 1001);
    let (a, b) = (normals(rows * cols, 8), normals(cols, 9));
    let mut out = vec![f32::NAN; rows * cols];
    let operands = (Strided((&a).into(), &[cols, 1]), Strided((&b).into(), &[0, 1]));
    broadcast_binary(Binary::Mul, operands.0, operands.1, &mut out, &[rows, cols], Par(3));
    assert!(out.iter().enumerate().all(|(i, &v)| v == a[i] * b[i % cols]));
}

#[test]
fn adds_in_place() {
    let (mut out, x) = (vec![1.0f32; 9], normals(9, 1));
    add_assign(&mut out, &x, Par(1));
    assert!(out.iter().zip(&x).all(|(o, x)| *o == 1.0 + x));
}

/// The same bits, NaN for NaN.
fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn unary_in_place() {
    for (op, n) in Unary::ALL.into_iter().flat_map(|op| SIZES.map(|n| (op, n))) {
        let (mut x, mut out) = (normals(n, 3), vec![f32::NAN; n]);
        unary(op, &x, &mut out, Par(2));
        unary(op, Source::Own, &mut x, Par(2));
        assert_eq!(bits(&x), bits(&out), "{op:?} of {n}");
    }
}

#[test]
fn binary_in_place() {
    for (op, n) in Binary::ALL.into_iter().flat_map(|op| SIZES.map(|n| (op, n))) {
        let (a, b, mut out) = (normals(n, 4), normals(n, 5), vec![f32::NAN; n]);
        let mut own = a.clone();
        binary(op, &a, &b, &mut out, Par(2));
        binary(op, Source::Own, &b, &mut own, Par(2));
        assert_eq!(bits(&own), bits(&out), "{op:?} of {n} at the first");
        own.copy_from_slice(&b);
        binary(op, &a, Source::Own, &mut own, Par(2));
        assert_eq!(bits(&own), bits(&out), "{op:?} of {n} at the second");
        binary(op, &a, &a, &mut out, Par(1));
        own.copy_from_slice(&a);
        binary(op, Source::Own, Source::Own, &mut own, Par(1));
        assert_eq!(bits(&own), bits(&out), "{op:?} of {n} at both");
    }
}

#[test]
fn broadcasts_in_place() {
    for dims in [[3, 4, 5], [3, 1, 70], [1, 1, 1], [40, 60, 90]] {
        let n = dims.iter().product();
        let dense = row_major(&dims);
        let (a, b) = (normals(n, 6), normals(n, 7));
        for strides in [&dense[..], &[0, 0, 1], &[1, 0, 0], &[0, dims[0], 1], &[0, 0, 0], &[1, dims[0], 0]] {
            for op in [Binary::Sub, Binary::SiluGrad] {
                let (mut out, mut own) = (vec![f32::NAN; n], a.clone());
                let (x, y) = (Strided((&a).into(), &dense), Strided((&b).into(), strides));
                let here = Strided(Source::Own, &dense);
                broadcast_binary(op, x, y, &mut out, &dims, Par(2));
                broadcast_binary(op, here, y, &mut own, &dims, Par(2));
                assert_eq!(bits(&own), bits(&out), "{dims:?} {strides:?}");
                broadcast_binary(op, y, x, &mut out, &dims, Par(2));
                own.copy_from_slice(&a);
                broadcast_binary(op, y, here, &mut own, &dims, Par(2));
                assert_eq!(bits(&own), bits(&out), "{dims:?} {strides:?}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "the result is dense")]
fn what_repeats_is_not_the_result() {
    let (x, here) = (Strided((&[1.0; 6]).into(), &[3, 1]), Strided(Source::Own, &[0, 1]));
    broadcast_binary(Binary::Add, x, here, &mut [0.0; 6], &[2, 3], Par(1));
}
