//! Tests of the text of kernels by rows, and of their threads.

use super::super::kernel::{FUNCTIONS, Kernel, TEAMS, VECTORS};
use super::super::spell::{BINARY, UNARY};
use super::*;
use crate::group::{Out, Read};
use crate::scalar::{Access, Binary, Element, Strides, Unary};

const ROWS: usize = 6;

fn row(value: usize, width: usize) -> Read {
    Read { value, access: Access::Strided(Strides { dims: vec![(ROWS, 1), (width, 0)], offset: 0 }) }
}

/// Rows divided by the root of the sum of their squares, in bf16, and that root's reciprocal.
fn norm(width: usize) -> Program {
    let mut program = Program::default();
    let x = program.push(Node::Input, Element::Bf16, ROWS * width);
    let square = program.push(Node::Unary(Unary::Square, Read::same(x)), Element::F32, ROWS * width);
    let sum = program.push(Node::Reduce(Reduction::Sum, square, width), Element::F32, ROWS);
    let rstd = program.push(Node::Unary(Unary::Rsqrt, Read::same(sum)), Element::F32, ROWS);
    let y = Node::Binary(Binary::Mul, Read::same(x), row(rstd, width));
    let y = program.push(y, Element::Bf16, ROWS * width);
    program.leave(y);
    program.leave(rstd);
    program
}

/// The sums over rows of a product, and the product.
fn sums(width: usize) -> Program {
    let mut program = Program::default();
    let [x, y] = [0, 1].map(|_| program.push(Node::Input, Element::F32, ROWS * width));
    let product = Node::Binary(Binary::Mul, Read::same(x), Read::same(y));
    let product = program.push(product, Element::F32, ROWS * width);
    program.leave(product);
    program.outs.push(Out { value: product, element: Element::F32, columns: Some(width), adds: true });
    program
}

fn text(program: &Program) -> String {
    let source = Kernel::new(program).unwrap().source;
    source.strip_prefix(&format!("{FUNCTIONS}{UNARY}{BINARY}{TEAMS}{VECTORS}")).unwrap().to_string()
}

#[test]
fn text_of_a_norm() {
    assert_eq!(text(&norm(50)), include_str!("golden_rows.cu"));
}

#[test]
fn text_of_sums_over_rows() {
    assert_eq!(text(&sums(50)), include_str!("golden_sums.cu"));
}

#[test]
fn teams_are_as_long_as_rows_are() {
    let shape = |width| Kernel::new(&norm(width)).unwrap().shape;
    assert_eq!([shape(1).block, shape(1024).block], [256, 256]);
    assert_eq!([shape(1).of_block, shape(1024).of_block], [8, 8]);
    assert_eq!(
        [shape(1025), shape(4096), shape(50_000)].map(|shape| (shape.block, shape.of_block)),
        [(64, 1), (128, 1), (1024, 1)]
    );
    // Rows of up to 32768 elements are in registers; longer ones are read again.
    let is_saved = |width| text(&norm(width)).contains(SAVED);
    assert_eq!([2, 1024, 32_768, 32_769].map(is_saved), [true, true, true, false]);
    // A row that is not reduced is shared by teams; six rows are two chunks.
    assert_eq!([50, 1024, 5000].map(|width| Kernel::new(&sums(width)).unwrap().shape.teams), [2, 2, 10]);
}

#[test]
fn rows_of_whole_vectors_are_read_by_them() {
    // Each thread of a warp has a vector of 8 or of 4; else elements go one by one.
    for (width, wide) in [(256, 8), (1032, 8), (264, 8), (128, 4), (260, 4), (120, 1), (258, 1)] {
        let text = text(&norm(width));
        let of =
            |wide: usize| text.contains(&format!("load_{wide}_bf16(in0 + row * {width}ull + begin, a0, is_aligned);"));
        assert_eq!([8, 4].map(of), [wide == 8, wide == 4], "{width}");
        assert_eq!(text.contains(&format!("store_{wide}_bf16(out0 ")), wide > 1, "{width}");
    }
}

#[test]
fn what_needs_several_kernels_is_told() {
    let mut program = norm(50);
    let again = program.push(Node::Reduce(Reduction::Max, 0, 25), Element::F32, 2 * ROWS);
    program.leave(again);
    assert!(Kernel::new(&program).unwrap_err().contains("its rows differ"));
    // Its rows are read in another order.
    let mut program = norm(ROWS);
    let across = Access::Strided(Strides { dims: vec![(ROWS, 0), (ROWS, 1)], offset: 0 });
    let y = Node::Binary(Binary::Mul, Read::same(0), Read { value: 3, access: across });
    let y = program.push(y, Element::F32, ROWS * ROWS);
    program.leave(y);
    assert!(Kernel::new(&program).unwrap_err().contains("one by one"));
}
