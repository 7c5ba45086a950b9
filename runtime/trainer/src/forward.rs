//! Forward of an unsharded model on one processor, without a program: statement by statement, so that callers read what programs do
//! not report.

use cpu::{Cpu, Kernel};
use data::gib;
use device::backend::{Backend, KernelSite, LaunchSite, Memory, Span};
use device::host;
use exec::{Input, Inputs};
use ir::arena::ALIGNMENT;
use ir::entity::SecondaryMap;
use ir::graph::{ArgKind, Block, Call, Model, ParamInstance, ResultKind, SectionKind};
use ir::ids::{BlockId, ModelValue, Value};
use ir::ops::{KernelOp, Op};
use ir::types::Type;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A model that is ready to run forward, with all its parameters.
pub struct Forward {
    model: Model,
    cpu: Cpu,
    /// By instance name.
    params: BTreeMap<String, Span>,
    blocks: BTreeMap<BlockId, ReadyBlock>,
    /// The logits, in the block of the last call.
    logits: Value,
}

/// A block with its kernels.
struct ReadyBlock {
    /// Places of all values but parameters. Blocks run one after the other, and share the memory.
    spans: SecondaryMap<Value, Option<Span>>,
    kernels: Vec<Kernel>,
}

/// Places of tensors, one after the other.
#[derive(Clone, Copy)]
struct Room(usize);

impl Room {
    fn take(&mut self, ty: &Type) -> Span {
        let span = Span::new(ty.dtype, self.0, ty.elements() as usize);
        self.0 = (self.0 + span.bytes()).next_multiple_of(ALIGNMENT as usize);
        span
    }
}

impl Forward {
    /// Makes a model ready on some threads, in at most `limit` bytes. Its parameters are zero. The model ends in a cross-entropy. Calls
    /// that this does not depend on, such as layers that predict further tokens, are left out with their parameters.
    ///
    /// # Errors
    /// It does not, has shardings, or needs more memory.
    pub fn new(model: Model, threads: usize, limit: u64) -> Result<Forward, String> {
        let logits = logits(&model).ok_or("the model does not end in a cross-entropy of logits")?;
        if model.mesh.devices() > 1 {
            return Err("the model is sharded over a mesh".into());
        }
        let mut model = needed(model);
        // Counts of experts' tokens, which training balances, have no kernel of their own.
        planner::decompose(&mut model).map_err(|why| why.to_string())?;
        let mut room = Room(0);
        let mut params = BTreeMap::new();
        for (param, at) in read_params(&model) {
            let param = &model.params[param];
            params.insert(param.instance_name(at), room.take(&param.ty));
        }
        let (mut places, mut end) = (BTreeMap::new(), room.0);
        for call in &model.calls {
            let mut room = room;
            places.insert(call.block, spans(&model.blocks[call.block], &mut room)?);
            end = end.max(room.0);
        }
        if end as u64 > limit {
            return Err(format!(
                "the model needs {:.1} GiB of memory, {:.1} GiB are free",
                gib(end as u64),
                gib(limit)
            ));
        }
        let mut cpu = Cpu::new(threads);
        cpu.reserve(end)?;
        let mut blocks = BTreeMap::new();
        for (id, spans) in places {
            let kernels = kernels(&model, &model.blocks[id], &mut cpu)?;
            blocks.insert(id, ReadyBlock { spans, kernels });
        }
        Ok(Forward { model, cpu, params, blocks, logits })
    }

    /// The parameters by instance name, with their sizes.
    pub fn params(&self) -> BTreeMap<String, Vec<u64>> {
        let params = read_params(&self.model).into_iter();
        let sizes = params.map(|(param, at)| {
            let param = &self.model.params[param];
            (param.instance_name(at), param.ty.sizes())
        });
        sizes.collect()
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// There is none of this name, or it has another number of elements.
    pub fn set_param(&mut self, name: &str, numbers: &[f32]) -> Result<(), String> {
        let span = *self.params.get(name).ok_or_else(|| format!("there is no parameter `{name}`"))?;
        if span.len != numbers.len() {
            return Err(format!("`{name}` has {} elements, not {}", span.len, numbers.len()));
        }
        host::put(&mut self.cpu, span, numbers);
        Ok(())
    }

    /// Runs all calls, and gives the logits of some rows: one row a token, in the order of the inputs.
    ///
    /// # Errors
    /// An input is missing or has another size.
    pub fn logits(&mut self, inputs: &Inputs, rows: Range<usize>) -> Result<Vec<f32>, String> {
        let mut known = self.inputs(inputs)?;
        for number in 0..self.model.calls.len() {
            self.call(number, &mut known)?;
        }
        let last = self.model.calls.last().ok_or("the model has no calls")?.block;
        let ty = self.model.blocks[last].ty(self.logits);
        let width = ty.sizes().last().map_or(1, |&size| size as usize);
        let span = self.blocks[&last].spans[self.logits].ok_or("the logits have no place")?;
        if rows.end * width > span.len {
            return Err(format!("there are {} rows of logits", span.len / width));
        }
        Ok(host::get(&mut self.cpu, span.part(rows.start * width, rows.len() * width)))
    }

    /// The bytes of each input.
    fn inputs(&self, inputs: &Inputs) -> Result<SecondaryMap<ModelValue, Option<Vec<u8>>>, String> {
        let mut known: SecondaryMap<ModelValue, Option<Vec<u8>>> = SecondaryMap::new();
        for input in &self.model.inputs {
            let name = &self.model.values[input.value];
            let bytes = match inputs.get(&input.value) {
                Some(Input::Ints(ints)) if !input.ty.dtype.is_float() => host::bytes_of(ints).to_vec(),
                Some(Input::Floats(numbers)) if input.ty.dtype.is_float() => {
                    host::stored(input.ty.dtype, numbers).into_owned()
                }
                _ => return Err(format!("the input `%{name}` is missing, or has other elements")),
            };
            if bytes.len() as u64 != input.ty.elements() * input.ty.dtype.bytes() {
                return Err(format!("the input `%{name}` has another size"));
            }
            known[input.value] = Some(bytes);
        }
        Ok(known)
    }

    /// Runs the instances of a call. Each passes its results to the first arguments of the next.
    fn call(&mut self, number: usize, known: &mut SecondaryMap<ModelValue, Option<Vec<u8>>>) -> Result<(), String> {
        let (instances, arguments) = (self.model.calls[number].instances(), self.model.calls[number].args.clone());
        let args = arguments.into_iter().map(|value| known[value].clone());
        let mut args = args.collect::<Option<Vec<_>>>().ok_or("a call reads what is not known")?;
        let mut results = Vec::new();
        for instance in 0..instances {
            args.iter_mut().zip(results).for_each(|(arg, bytes)| *arg = bytes);
            results = self.instance(number, instance, &args)?;
        }
        self.model.calls[number].results.iter().zip(results).for_each(|(&result, bytes)| known[result] = Some(bytes));
        Ok(())
    }

    /// Runs an instance of a call on the bytes of its arguments, and gives those of its results.
    fn instance(&mut self, number: usize, instance: u32, args: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        let Forward { model, cpu, params, blocks, .. } = self;
        let call = &model.calls[number];
        let block = &model.blocks[call.block];
        let ReadyBlock { spans, kernels } = blocks.get_mut(&call.block).ok_or("the block of a call is not ready")?;
        let places = Places { block, params: bound(model, params, call, instance), spans };
        let flowing = block.args.iter().filter(|arg| matches!(arg.kind, ArgKind::Value | ArgKind::Input));
        for (arg, bytes) in flowing.zip(args) {
            cpu.write(places.one(arg.value)?, bytes);
        }
        let site = LaunchSite { microbatch: 0, index: u64::from(call.index(instance)) };
        for (stmt, kernel) in block[SectionKind::F].stmts.iter().zip(kernels) {
            cpu.launch(kernel, site, &places.all(&stmt.operands)?, &places.all(&stmt.results)?, false);
        }
        let returned = block.results.iter().zip(&block[SectionKind::F].ret);
        let mut results = Vec::new();
        for (_, &value) in returned.filter(|(kind, _)| **kind == ResultKind::Value) {
            let span = places.one(value)?;
            let mut bytes = vec![0; span.bytes()];
            cpu.read(span, &mut bytes);
            results.push(bytes);
        }
        Ok(results)
    }
}

/// The places of all values in one instance of a block.
struct Places<'a> {
    block: &'a Block,
    /// Places of the parameters of the instance.
    params: BTreeMap<Value, Span>,
    spans: &'a SecondaryMap<Value, Option<Span>>,
}

impl Places<'_> {
    fn one(&self, value: Value) -> Result<Span, String> {
        let span = self.params.get(&value).copied().or(self.spans[value]);
        let Places { block, .. } = self;
        span.ok_or_else(|| format!("`%{}` of block `{}` has no place", block.value_name(value), block.name))
    }

    fn all(&self, values: &[Value]) -> Result<Vec<Span>, String> {
        values.iter().map(|&value| self.one(value)).collect()
    }
}

/// The model without the calls that its last call does not depend on.
fn needed(mut model: Model) -> Model {
    let last = model.calls.len().saturating_sub(1);
    let mut read: BTreeSet<ModelValue> = BTreeSet::new();
    let mut kept = Vec::new();
    for (number, call) in model.calls.into_iter().enumerate().rev() {
        if number == last || call.results.iter().any(|result| read.contains(result)) {
            read.extend(&call.args);
            kept.push(call);
        }
    }
    kept.reverse();
    model.calls = kept;
    model
}

/// The parameters that the calls of a model bind.
fn read_params(model: &Model) -> BTreeSet<ParamInstance> {
    let instances = model.calls.iter().flat_map(|call| (0..call.instances()).map(move |instance| (call, instance)));
    instances.flat_map(|(call, instance)| model.call_params(call, instance)).collect()
}

/// The logits of the last call: what its cross-entropy reads.
fn logits(model: &Model) -> Option<Value> {
    let block = &model.blocks[model.calls.last()?.block];
    let mut stmts = block[SectionKind::F].stmts.iter();
    let loss = stmts.find(|stmt| matches!(stmt.op, Op::Kernel(KernelOp::CrossEntropy(_))))?;
    Some(loss.operands[0])
}

/// Places of all values of a block's forward but its parameters.
fn spans(block: &Block, room: &mut Room) -> Result<SecondaryMap<Value, Option<Span>>, String> {
    let mut spans = SecondaryMap::new();
    for arg in &block.args {
        match arg.kind {
            ArgKind::Value | ArgKind::Input => spans[arg.value] = Some(room.take(block.ty(arg.value))),
            ArgKind::Param => {}
            ArgKind::Const | ArgKind::State => {
                let name = block.value_name(arg.value);
                return Err(format!("the forward of block `{}` reads `%{name}`, which only a run has", block.name));
            }
        }
    }
    let made = block[SectionKind::F].stmts.iter().flat_map(|stmt| &stmt.results);
    made.for_each(|&value| spans[value] = Some(room.take(block.ty(value))));
    Ok(spans)
}

/// A kernel for each statement of a block's forward.
fn kernels(model: &Model, block: &Block, cpu: &mut Cpu) -> Result<Vec<Kernel>, String> {
    let coordinates = model.mesh.coordinates(0);
    let mut kernels = Vec::new();
    for stmt in &block[SectionKind::F].stmts {
        let op = stmt.op.kernel().ok_or_else(|| format!("`{}` has no kernel", stmt.op.name()))?;
        let [operands, results] = [&stmt.operands, &stmt.results]
            .map(|side| side.iter().map(|&value| block.ty(value)).collect::<Vec<&Type>>());
        let site = KernelSite {
            mesh: &model.mesh,
            coordinates: &coordinates,
            operands: &operands,
            results: &results,
            forward: true,
        };
        kernels.push(cpu.prepare(op, &site)?);
    }
    Ok(kernels)
}

/// The places of the parameters that an instance of a call binds.
fn bound(model: &Model, params: &BTreeMap<String, Span>, call: &Call, instance: u32) -> BTreeMap<Value, Span> {
    let values = model.blocks[call.block].args_of(ArgKind::Param);
    let named = values.zip(model.call_params(call, instance));
    named
        .filter_map(|(value, (param, at))| Some((value, *params.get(&model.params[param].instance_name(at))?)))
        .collect()
}
