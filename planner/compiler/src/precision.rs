//! Precisions by name: the format of parameters and activations, and the quantisation of products.

use crate::request_error::RequestError;
use ir::graph::Model;
use ir::options::{Quantisation, Scales};
use ir::types::DType;

/// Elements of a block along one dim (DeepSeek-V3, section 3.3.2).
const BLOCK: u64 = 128;

/// Steps that delayed scaling looks back on: the history of Transformer Engine's first example.
const STEPS: u64 = 16;

/// The number formats of a training step. Below f32, the optimizer keeps an f32 copy of parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Precision {
    /// The type of parameters and activations.
    pub dtype: DType,
    /// The quantisation of the operands of products with parameters.
    pub quantisation: Option<Quantisation>,
}

impl Precision {
    fn plain(dtype: DType) -> Precision {
        Precision { dtype, quantisation: None }
    }

    /// Precision of parameters in bf16 with quantised products.
    fn quantised(scales: Scales, cotangents: DType) -> Precision {
        Precision { dtype: DType::BF16, quantisation: Some(Quantisation { scales, cotangents }) }
    }

    /// Checks that a model that states its types has parameters of the type of this precision, whose name is given. `f32` is the default, and
    /// asks for nothing.
    ///
    /// # Errors
    /// All of its parameters have other types.
    pub fn check(&self, model: &Model, name: &str) -> Result<(), RequestError> {
        let mut types = model.params.values().map(|param| param.ty.dtype).filter(|dtype| dtype.is_float());
        match types.clone().next() {
            Some(stated) if self.dtype != DType::F32 && types.all(|dtype| dtype != self.dtype) => {
                let (stated, wanted) = (stated.name(), self.dtype.name());
                Err(RequestError::OwnTypes { stated, precision: name.to_string(), wanted })
            }
            _ => Ok(()),
        }
    }
}

/// The precision of a name.
///
/// `fp8-block` has f8e4m3 throughout, as DeepSeek-V3 has; `fp8-tensor` has f8e5m2 for cotangents, the hybrid of Micikevicius et al. (2022) and of
/// Transformer Engine.
///
/// # Errors
/// It is none of these.
pub fn precision(name: &str) -> Result<Precision, RequestError> {
    match name {
        "f32" => Ok(Precision::plain(DType::F32)),
        "bf16" => Ok(Precision::plain(DType::BF16)),
        "f16" | "fp16" => Ok(Precision::plain(DType::F16)),
        "fp8-block" => Ok(Precision::quantised(Scales::Blocks(BLOCK), DType::F8E4M3)),
        "fp8-delayed" => Ok(Precision::quantised(Scales::Delayed(STEPS), DType::F8E5M2)),
        "fp8-tensor" => Ok(Precision::quantised(Scales::Tensor, DType::F8E5M2)),
        other => Err(RequestError::UnknownPrecision { precision: other.to_string() }),
    }
}
