//! Tables of embeddings: of tokens, of other ids, or of positions.

use super::{Data, Form, Lowering};
use crate::atoms::{Atom, Axis};
use crate::eval::Tensor;
use crate::graph::RecordedNode;
use crate::program::{Action, Argument, Use, Var};
use crate::refusal::{Refusal, contradiction};

impl<'a> Lowering<'a> {
    /// Rows of a table, of tokens or of positions.
    pub(super) fn embedding(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let table = self.argument(node, "weight")?;
        let Form::Weight(mut view) = self.form(table)? else {
            return Err("a table of embeddings is no parameter".into());
        };
        let [(_, _), (width, _)] = *view.dims.as_slice() else {
            return Err("a table of embeddings is no matrix".into());
        };
        let ids = self.argument(node, "indices")?;
        let (operand, pad) = match self.known(ids).cloned() {
            Some(positions) => {
                let first = self.first_position(&positions)?;
                let (rows, step) = view.dims[0];
                let Some(left) = self.atoms.size(rows).checked_sub(first) else {
                    return Err(contradiction("positions are beyond the rows of their table"));
                };
                if first > 0 {
                    view.first += first * step;
                    view.dims[0] = (self.atoms.add(left), step);
                }
                (Argument::Positions, None)
            }
            None => {
                let Form::Tokens { input, axes } = self.form(ids)? else {
                    return Err("ids are neither tokens nor positions".into());
                };
                let pad = self.call(node).int_or("padding_idx", -1)?;
                let table = self.weight(view, Use::Matrix);
                return Ok(Form::Data(self.rows_of_table(input, axes, (table, width), u64::try_from(pad).ok())));
            }
        };
        let table = self.weight(view, Use::Matrix);
        let axes = vec![vec![self.batch], vec![self.sequence], vec![width]];
        let var = self.state(Action::Embedding { pad }, vec![operand, table], axes.concat());
        Ok(Form::Data(Data { var, axes }))
    }

    /// The rows of a table for ids.
    fn rows_of_table(
        &mut self,
        input: Option<Var>,
        mut axes: Vec<Axis>,
        (table, width): (Argument, Atom),
        pad: Option<u64>,
    ) -> Data {
        let ids = input.map_or(Argument::Tokens, Argument::Var);
        let own = input.map_or(vec![self.batch, self.sequence], |input| self.dims(input));
        let var = self.state(Action::Embedding { pad }, vec![ids, table], [own.as_slice(), &[width]].concat());
        axes.push(vec![width]);
        Data { var, axes }
    }

    /// The position of the first token. Positions count the tokens of each sequence.
    fn first_position(&self, positions: &Tensor) -> Result<u64, Refusal> {
        let (width, _) = positions.rows();
        let first = positions.data.first().copied().unwrap_or(0.0);
        let place = |at: usize| first + (at % width.max(1)) as f64;
        let counts = positions.data.iter().enumerate().all(|(at, &position)| position == place(at));
        if counts && width as u64 == self.atoms.size(self.sequence) && first >= 0.0 {
            return Ok(first as u64);
        }
        Err("positions do not count the tokens of each sequence".into())
    }
}
