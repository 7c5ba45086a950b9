//! Ops without attributes, one name for each in encoding, rules and decoding.

use ir::ops::{
    Binary, BinaryKind, Compare, CompareKind, Equation, Op, Pick, Softmax, SumExp, TokenLoss, Unary, UnaryKind,
};

/// An op without attributes. The order is that of the names: of forms that cost the same, the first is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum PlainOp {
    /// `add`
    Add,
    /// `cos`
    Cos,
    /// `div`
    Div,
    /// `equal`
    Equal,
    /// `erf`
    Erf,
    /// `exp`
    Exp,
    /// `gelu`
    Gelu,
    /// `gelu_erf`
    GeluErf,
    /// `less`
    Less,
    /// `less_equal`
    LessEqual,
    /// `log`
    Log,
    /// `max`
    Max,
    /// `min`
    Min,
    /// `mul`
    Mul,
    /// `neg`
    Neg,
    /// `pick`
    Pick,
    /// `recip`
    Recip,
    /// `relu_squared`
    ReluSquared,
    /// `rsqrt`
    Rsqrt,
    /// `sigmoid`
    Sigmoid,
    /// `silu`
    Silu,
    /// `sin`
    Sin,
    /// `softmax`
    Softmax,
    /// `sqrt`
    Sqrt,
    /// `square`
    Square,
    /// `sub`
    Sub,
    /// `sum_exp`
    SumExp,
    /// `tanh`
    Tanh,
    /// `token_loss`
    TokenLoss,
}

impl PlainOp {
    /// Its name in the text form.
    pub(crate) fn name(self) -> &'static str {
        self.op(None).name()
    }

    /// Its op. Of two operands, an elementwise op may repeat some by an equation.
    pub(crate) fn op(self, equation: Option<Equation>) -> Op {
        let binary = |kind| Binary { kind, equation }.into();
        match self {
            PlainOp::Add => binary(BinaryKind::Add),
            PlainOp::Cos => Unary(UnaryKind::Cos).into(),
            PlainOp::Div => binary(BinaryKind::Div),
            PlainOp::Equal => Compare(CompareKind::Equal).into(),
            PlainOp::Erf => Unary(UnaryKind::Erf).into(),
            PlainOp::Exp => Unary(UnaryKind::Exp).into(),
            PlainOp::Gelu => Unary(UnaryKind::Gelu).into(),
            PlainOp::GeluErf => Unary(UnaryKind::GeluErf).into(),
            PlainOp::Less => Compare(CompareKind::Less).into(),
            PlainOp::LessEqual => Compare(CompareKind::LessEqual).into(),
            PlainOp::Log => Unary(UnaryKind::Log).into(),
            PlainOp::Max => binary(BinaryKind::Max),
            PlainOp::Min => binary(BinaryKind::Min),
            PlainOp::Mul => binary(BinaryKind::Mul),
            PlainOp::Neg => Unary(UnaryKind::Neg).into(),
            PlainOp::Pick => Pick.into(),
            PlainOp::Recip => Unary(UnaryKind::Recip).into(),
            PlainOp::ReluSquared => Unary(UnaryKind::ReluSquared).into(),
            PlainOp::Rsqrt => Unary(UnaryKind::Rsqrt).into(),
            PlainOp::Sigmoid => Unary(UnaryKind::Sigmoid).into(),
            PlainOp::Silu => Unary(UnaryKind::Silu).into(),
            PlainOp::Sin => Unary(UnaryKind::Sin).into(),
            PlainOp::Softmax => Softmax.into(),
            PlainOp::Sqrt => Unary(UnaryKind::Sqrt).into(),
            PlainOp::Square => Unary(UnaryKind::Square).into(),
            PlainOp::Sub => binary(BinaryKind::Sub),
            PlainOp::SumExp => SumExp.into(),
            PlainOp::Tanh => Unary(UnaryKind::Tanh).into(),
            PlainOp::TokenLoss => TokenLoss.into(),
        }
    }
}
