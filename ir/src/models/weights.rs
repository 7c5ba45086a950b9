//! The names and shapes of a family's weights in files of the hub, as data.

/// The weights of a family in files.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// The name of the model without its head, which files that were saved without the head lack.
    pub base: &'static str,
    /// The name of the layers within the model, in front of their number.
    pub layers: &'static str,
    /// The tensor of the head's matrix, which some files have even if the head is tied.
    pub head: &'static str,
    /// The tensor of the embedding.
    pub embedding: &'static str,
    /// The tensors outside of layers, by full name.
    pub outer: &'static [HubTensor],
    /// Lists of the tensors of a layer. Of those that have a parameter the first one counts whose condition holds.
    pub inner: &'static [&'static [HubTensor]],
    /// The places in files of the two elements that a rotary position turns.
    pub pairs: Pairs,
    /// The parameters whose last dim has such pairs, if they are adjacent.
    pub turned: &'static [&'static str],
    /// Numbers of a layer that never change, and that files have as tensors without dims: names and values.
    pub constants: &'static [(&'static str, f32)],
    /// Layers that predict further tokens in files whose configuration does not state their number.
    pub further: u32,
}

/// The places in files of the two elements that a rotary position turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pairs {
    /// Half of the dim apart, as parameters have them.
    Apart,
    /// Next to each other.
    Adjacent,
    /// Next to each other, unless this key of the configuration is false.
    Stated(&'static str),
}

/// A tensor of files, and the parameters whose elements it has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HubTensor {
    /// Its name; in a layer, behind that of the layer. `{}` stands for the number of an expert. Where `{layer}` stands for that of the
    /// layer, the name is behind that of the model.
    pub name: &'static str,
    /// The parameters, in their order in the tensor.
    pub params: &'static [&'static str],
    /// The dims of each parameter that the tensor has in front of a matrix: those of experts.
    pub leading: usize,
    /// The dims of each parameter behind these that are inputs of its matrix; 0: it is a vector. The others are outputs.
    pub inputs: usize,
    /// True if the leading dims and the rows of the matrix are one dim of the tensor.
    pub stacked: bool,
    /// The order of the matrix.
    pub order: MatrixOrder,
    /// The places of the parameters.
    pub join: Join,
    /// The condition under which files have it.
    pub when: When,
    /// The number that is added to its elements.
    pub shift: f32,
    /// The dims that it has in files.
    pub form: FileShape,
    /// It has the outputs of all layers, the first layer's first. Its name is behind that of the model.
    pub of_layers: bool,
}

/// The dims of a tensor in files, where they are others than those of a vector or a matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileShape {
    /// They are not.
    Usual,
    /// A convolution of single channels: the last dim of a parameter, behind one of one element; all others are rows.
    Taps,
    /// A convolution over patches: outputs, channels, and the two sides of a patch.
    Patches,
    /// A number for each head, among two dims of one element in front and one behind (Kimi Linear).
    OfHeads,
}

/// The order of a matrix in files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MatrixOrder {
    /// Outputs in rows, inputs in columns.
    OutputsFirst,
    /// Inputs in rows, outputs in columns.
    InputsFirst,
}

/// How a tensor has several parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// The outputs of one behind those of the other.
    Outputs,
    /// The inputs of one behind those of the other.
    Inputs,
    /// The outputs of each head together: those of one behind those of the other.
    Heads,
    /// The outputs of each first dim together: those of one behind those of the other (Falcon).
    Groups,
    /// The outputs of each of some equal parts of the first dim together: those of one behind those of the other (CodeGen).
    Parts(u64),
    /// One output of each in turn.
    Alternating,
}

/// A condition under which files have a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// None.
    Always,
    /// They have a tensor of this name; in a layer, behind that of the layer.
    File(&'static str),
    /// The layer has this parameter.
    Param(&'static str),
    /// They have the tensor in the sizes of the row: its matrices have either order.
    Sizes,
}

impl HubTensor {
    /// A vector, or several of them.
    pub(super) const fn vector(name: &'static str, params: &'static [&'static str]) -> HubTensor {
        HubTensor {
            name,
            params,
            leading: 0,
            inputs: 0,
            stacked: false,
            order: MatrixOrder::OutputsFirst,
            join: Join::Outputs,
            when: When::Always,
            shift: 0.0,
            form: FileShape::Usual,
            of_layers: false,
        }
    }

    /// The matrix of a linear layer of one dim of inputs: outputs are in rows.
    pub(super) const fn linear(name: &'static str, params: &'static [&'static str]) -> HubTensor {
        HubTensor { inputs: 1, ..HubTensor::vector(name, params) }
    }

    /// A matrix with inputs in rows.
    pub(super) const fn table(name: &'static str, params: &'static [&'static str]) -> HubTensor {
        HubTensor { order: MatrixOrder::InputsFirst, ..HubTensor::linear(name, params) }
    }

    /// The same of parameters with more dims of inputs.
    pub(super) const fn of_inputs(self, inputs: usize) -> HubTensor {
        HubTensor { inputs, ..self }
    }

    /// One of each expert, in one tensor.
    pub(super) const fn of_experts(self) -> HubTensor {
        HubTensor { leading: 1, ..self }
    }

    /// The matrices of all experts, one below the other.
    pub(super) const fn stacked(self) -> HubTensor {
        HubTensor { leading: 1, stacked: true, ..self }
    }

    /// The same with other places of the parameters.
    pub(super) const fn joined(self, join: Join) -> HubTensor {
        HubTensor { join, ..self }
    }

    /// The same under a condition.
    pub(super) const fn when(self, when: When) -> HubTensor {
        HubTensor { when, ..self }
    }

    /// The same with other dims.
    pub(super) const fn shaped(self, form: FileShape) -> HubTensor {
        HubTensor { form, ..self }
    }

    /// One of all layers.
    pub(super) const fn of_layers(self) -> HubTensor {
        HubTensor { of_layers: true, ..self }
    }

    /// Gains that files have relative to 1.
    pub(super) const fn around_one(self) -> HubTensor {
        HubTensor { shift: 1.0, ..self }
    }
}
