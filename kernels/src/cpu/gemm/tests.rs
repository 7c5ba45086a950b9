//! Tests of products for every instruction set and memory layout, against sums in f64.

use super::super::testing::{Stored, assert_close, doubles, normals};
use super::*;
use crate::cpu::narrow::Narrow;

/// The instruction sets that this processor has.
fn levels() -> Vec<&'static Level> {
    let mut levels = vec![&level::PORTABLE];
    #[cfg(target_arch = "x86_64")]
    match crate::cpu::simd::Level::detect() {
        crate::cpu::simd::Level::Avx512 => levels.extend([&level::x86::AVX2, &level::x86::AVX512]),
        crate::cpu::simd::Level::Avx2 => levels.push(&level::x86::AVX2),
        crate::cpu::simd::Level::Baseline => {}
    }
    levels
}

/// Layouts of a matrix of `rows` x `columns`: by rows, by columns, with gaps in both.
fn layouts([rows, columns]: [usize; 2]) -> [[usize; 2]; 3] {
    [[columns, 1], [1, rows], [2 * columns + 3, 2]]
}

/// The product by definition, into the elements of `out`.
fn exact([m, n, k]: [usize; 3], a: Matrix<&[f64]>, b: Matrix<&[f64]>, out: Matrix<&mut [f64]>, scale: f64, keep: f64) {
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let at = |x: [usize; 2], i: usize, j: usize| i * x[0] + j * x[1];
        let sum: f64 = (0..k).map(|q| a.data[at(a.strides, i, q)] * b.data[at(b.strides, q, j)]).sum();
        let value = &mut out.data[at(out.strides, i, j)];
        *value = scale * sum + keep * *value;
    }
}

fn check(level: &Level, size: [usize; 3], [a, b, out]: [[usize; 2]; 3]) {
    let [m, n, k] = size;
    let [a_values, b_values] = [([m, k], a, 1), ([k, n], b, 2)].map(|(d, s, seed)| normals(span(&d, &s), seed));
    let mut values = normals(span(&[m, n], &out), 3);
    let mut expected = doubles(&values);
    for (scale, accumulate) in [(1.0, false), (-0.5, true)] {
        let (x, y) = (doubles(&a_values), doubles(&b_values));
        let (x, y) = (Matrix { data: &x[..], strides: a }, Matrix { data: &y[..], strides: b });
        let to = Matrix { data: &mut expected[..], strides: out };
        exact(size, x, y, to, f64::from(scale), if accumulate { 1.0 } else { 0.0 });
        let product = Product {
            size,
            a: Matrix { data: &a_values[..], strides: a }.pointer([m, k]),
            b: Matrix { data: &b_values[..], strides: b }.pointer([k, n]),
            out: Some(Matrix { data: values.as_mut_ptr(), strides: out }),
            scale,
            accumulate,
            finish: None,
            units: None,
        };
        // SAFETY: all three have the elements that size and strides reach.
        unsafe { product.with_contiguous_rows().run(level) };
        // The comparison includes the gaps.
        assert_close(&values, &expected, 2e-4);
    }
}

#[test]
fn every_layout_and_level() {
    for level in levels() {
        for size in [[1, 1, 1], [2, 3, 5], [14, 32, 16], [15, 33, 17], [29, 70, 40], [3, 1, 600], [1, 65, 9], [5, 4, 0]]
        {
            let [m, n, k] = size;
            for a in layouts([m, k]) {
                for b in layouts([k, n]) {
                    for out in layouts([m, n]) {
                        check(level, size, [a, b, out]);
                    }
                }
            }
        }
    }
}

/// Compares the bits of products of stored operands and of their numbers.
fn check_narrow(level: &Level, size: [usize; 3], [a, b]: [&Stored; 2], strides: [[usize; 2]; 2]) {
    let [m, n, k] = size;
    let product = |[a, b]: [Floats; 2]| {
        let mut out = normals(m * n, 3);
        let a = Matrix { data: a, strides: strides[0] }.pointer([m, k]);
        let b = Matrix { data: b, strides: strides[1] }.pointer([k, n]);
        let to = Matrix::rows(out.as_mut_ptr(), n);
        // SAFETY: all three have the elements that size and strides reach.
        unsafe {
            Product { size, a, b, out: Some(to), scale: 0.5, accumulate: true, finish: None, units: None }.run(level)
        };
        out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    assert!(product([a.floats(), b.floats()]) == product([&a.numbers, &b.numbers].map(Into::into)), "{size:?}");
}

#[test]
fn narrow_operands_in_every_layout_and_level() {
    let levels = levels();
    for [m, n, k] in [[1, 1, 1], [2, 3, 5], [14, 32, 16], [29, 70, 40], [3, 1, 600], [130, 9, 20], [1, 300, 9]] {
        for (formats, (a, b)) in Stored::mixes().into_iter().flat_map(|formats| {
            let layouts = layouts([m, k]).into_iter().flat_map(move |a| layouts([k, n]).map(|b| (a, b)));
            layouts.map(move |layout| (formats, layout))
        }) {
            let x = Stored::new(formats[0], &normals(span(&[m, k], &a), 1));
            let y = Stored::new(formats[1], &normals(span(&[k, n], &b), 2));
            levels.iter().for_each(|level| check_narrow(level, [m, n, k], [&x, &y], [a, b]));
        }
    }
}

#[test]
fn narrow_words_of_many_blocks() {
    // Several blocks of columns and of terms, and several numbers of rows whose words are held.
    let (m, n, k) = (20, 4 * COLUMNS + 9, 2 * DEPTH + 3);
    let long = HELD / 14 + 1;
    for level in levels() {
        for (size, a, b) in [([m, n, k], [k, 1], [n, 1]), ([m, n, k], [1, m], [1, k]), ([15, 9, long], [1, 15], [9, 1])]
        {
            let [m, n, k] = size;
            let x = Stored::new(Some(Narrow::F16), &normals(m * k, 1));
            let y = Stored::new(Some(Narrow::Bf16), &normals(k * n, 2));
            check_narrow(level, size, [&x, &y], [a, b]);
        }
    }
}

#[test]
fn every_size_of_a_tile() {
    for level in levels() {
        for (m, n) in (1..=level.rows + 1).flat_map(|m| (1..=level.width() + 1).map(move |n| (m, n))) {
            check(level, [m, n, 7], [[7, 1], [n, 1], [n, 1]]);
        }
    }
}

#[test]
fn many_blocks() {
    let size = [FEW_ROWS + 5, COLUMNS + 40, 2 * DEPTH + 3];
    let [m, n, k] = size;
    for level in levels() {
        check(level, size, [[k, 1], [n, 1], [n, 1]]);
        check(level, size, [[1, m], [1, k], [n, 1]]);
    }
}

#[test]
fn rows_whole_pages_apart() {
    for level in levels() {
        check(level, [30, 70, 40], [[PAGE, 1], [2 * PAGE, 1], [PAGE, 1]]);
        check(level, [30, 70, 40], [[1, PAGE / 2], [70, 1], [70, 1]]);
        check(level, [31, 300, DEPTH + 5], [[1, PAGE], [300, 1], [300, 1]]);
        let (a, b) = (normals(39 * PAGE + 30, 1), Stored::new(Some(Narrow::Bf16), &normals(40 * 70, 2)));
        let a = Stored::new(None, &a);
        check_narrow(level, [30, 70, 40], [&a, &b], [[1, PAGE], [70, 1]]);
        check_narrow(level, [30, 70, 40], [&a, &b], [[PAGE, 1], [1, 40]]);
    }
}

#[test]
fn the_order_of_the_sum_depends_on_k_alone() {
    let [m, n, k] = [300, 290, 600];
    let (a, b) = (normals(m * k, 1), normals(k * n, 2));
    let multiply = |m: usize, first: usize, threads: usize| {
        let mut out = vec![f32::NAN; m * n];
        let to = Matrix::rows(out.as_mut_ptr(), n);
        // SAFETY: `out` has `m` rows of `n`.
        unsafe {
            multiply([m, n, k], Matrix::rows(&a[first * k..], k), Matrix::rows(&b, n), to, 1.0, false, threads);
        }
        out
    };
    let whole = multiply(m, 0, 1);
    assert!(multiply(m, 0, 3) == whole);
    for first in [0, 1, 17, 299] {
        assert!(multiply(1, first, 1) == whole[first * n..][..n], "row {first}");
    }
}

#[test]
fn transposes_with_padding() {
    for (rows, width) in [(1, 1), (5, 7), (16, 16), (33, 40), (128usize, 9)] {
        let (stride, across) = (rows.next_multiple_of(16), width + 3);
        let x = normals(rows * across, 1);
        let mut out = vec![0.0; width * stride];
        transpose(Matrix::rows(&x, across), [rows, width], &mut out, stride);
        for (i, &value) in out.iter().enumerate() {
            let (j, row) = (i / stride, i % stride);
            assert_eq!(value, if row < rows { x[row * across + j] } else { 0.0 }, "{rows} {width}");
        }
    }
}

#[test]
fn column_products_have_the_bits_of_products() {
    let (k, n) = (DEPTH, 48);
    let (a, b) = (normals(k * n, 1), normals(k * n, 2));
    let mut columns = vec![f32::NAN; n];
    column_products(&a, &b, &mut columns);
    for (j, &sum) in columns.iter().enumerate() {
        let mut one = [f32::NAN];
        let (x, y) = (Matrix { data: &a[j..], strides: [0, n] }, Matrix { data: &b[j..], strides: [n, 0] });
        // SAFETY: the product has one element.
        unsafe { multiply([1, 1, k], x, y, Matrix::rows(one.as_mut_ptr(), 1), 1.0, false, 1) };
        assert_eq!(one[0].to_bits(), sum.to_bits());
    }
}
