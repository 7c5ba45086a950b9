//! Tests of the text of kernels on single elements. `tests/cuda_text.rs` tests that they compute the right result.

use super::super::kernel::Kernel;
use crate::group::{Node, Program, Read};
use crate::scalar::{Access, Binary, Element, Strides, Unary};

/// `silu(gate) * up`, in bf16 and f32, times a constant of each row of 8, and the sigmoid of the gate.
fn swiglu() -> Program {
    let mut program = Program::default();
    let [gate, up, scale] = [(Element::F32, 64), (Element::Bf16, 64), (Element::F32, 8)]
        .map(|(element, len)| program.push(Node::Input, element, len));
    let silu = program.push(Node::Unary(Unary::Silu, Read::same(gate)), Element::Bf16, 64);
    let product = Node::Binary(Binary::Mul, Read::same(silu), Read::same(up));
    let product = program.push(product, Element::F32, 64);
    let row = Access::Strided(Strides { dims: vec![(8, 1), (8, 0)], offset: 0 });
    let scaled = Node::Binary(Binary::Mul, Read::same(product), Read { value: scale, access: row });
    let scaled = program.push(scaled, Element::F32, 64);
    let shifted = program.push(Node::Unary(Unary::Shift(0.1), Read::same(scaled)), Element::Bf16, 64);
    program.leave(silu);
    program.leave(shifted);
    program.outs[1].adds = true;
    program
}

fn text(program: &Program) -> String {
    Kernel::new(program).unwrap().source.split_once(super::super::spell::BINARY).unwrap().1.to_string()
}

#[test]
fn text_of_a_chain() {
    assert_eq!(text(&swiglu()), include_str!("golden_flat.cu"));
}

#[test]
fn text_of_a_strided_copy() {
    let access = Access::Strided(Strides { dims: vec![(3, 1), (2, 3)], offset: 6 });
    let text = text(&Program::copy([Element::F32; 2], (access, 12), 6));
    for part in ["place = 6ull", "place += rest % 2u * 3ull;", "place0(e);"] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    assert!(!text.contains("float4"), "a strided input is read one by one");
}

#[test]
fn a_broken_program_has_no_text() {
    let mut program = swiglu();
    program.outs[0].value = 9;
    assert!(Kernel::new(&program).unwrap_err().contains("out 0 leaves no value"));
}
