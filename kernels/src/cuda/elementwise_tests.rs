//! Tests of the generated kernel's text. `tests/cuda_text.rs` tests that the kernel computes the right result.

use super::*;

/// `silu(gate) * up`, in bf16 and f32, and a constant.
fn swiglu() -> Program {
    let input = |element, access| Input { element, access };
    Program {
        inputs: vec![
            input(Element::F32, Access::Same),
            input(Element::Bf16, Access::Same),
            input(Element::F32, Access::One),
        ],
        steps: vec![
            Step::Unary(Unary::Silu, Value::Input(0)),
            Step::Binary(Binary::Mul, Value::Step(0), Value::Input(1)),
            Step::Binary(Binary::Add, Value::Step(1), Value::Input(2)),
            Step::Unary(Unary::Scale(0.1), Value::Step(2)),
        ],
        result: Value::Step(3),
        output: Element::F32,
    }
}

#[test]
fn text_of_a_chain() {
    let source = source(&swiglu()).unwrap();
    let text = source.strip_prefix(FUNCTIONS).expect("the shared functions come first");
    assert_eq!(text, include_str!("elementwise_golden.cu"));
}

#[test]
fn text_of_a_strided_copy() {
    let access = Access::Strided(Strides { dims: vec![(3, 1), (2, 3)], offset: 6 });
    let source = source(&Program::copy(Element::F32, access)).unwrap();
    let text = source.strip_prefix(FUNCTIONS).unwrap();
    for part in ["place = 6ull", "place += rest % 2u * 3ull;", "out[i] = store_f32(value(load_f32(in0[place0(i)])));"] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    assert!(!text.contains("float4"), "a strided input is read one by one");
}

#[test]
fn constants_keep_their_bits() {
    assert_eq!([0.1, -3.0, 1e-30, 16_777_216.0].map(literal), ["0.1f", "-3.0f", "1e-30f", "16777216.0f"]);
    assert_eq!(literal(f32::INFINITY), "__uint_as_float(0x7f800000u)");
}

#[test]
fn a_broken_program_has_no_text() {
    let program = Program { result: Value::Step(9), ..swiglu() };
    assert!(source(&program).unwrap_err().contains("step 9"));
}
