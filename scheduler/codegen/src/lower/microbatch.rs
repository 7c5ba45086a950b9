//! Code generation for the actions of a micro-batch: F, I, W and B.

use super::flow::{Flow, Origin};
use super::stream::{Invocation, StreamBuilder, ValueKey};
use super::{Bodies, CodegenError};
use ir::graph::{LossMean, Model, ResultKind, SectionKind};
use ir::ids::{ModelValue, Reg};
use ir::program::{BodyKind, Instr};
use ir::saved::forward_args;
use ir::schedule::Kind;
use ir::types::Type;
use std::collections::HashMap;

/// The type of one of a value's cotangents.
pub(super) fn cotangent_type<'a>(model: &'a Model, flow: &Flow<'_>, made: usize, index: usize) -> &'a Type {
    let (run, place) = flow.made[made].cotangents[index];
    let block = &model.blocks[flow.runs[run].block];
    block.ty(block[SectionKind::I].ret[place])
}

impl StreamBuilder<'_> {
    /// F of the runs of an item, in call order.
    pub(super) fn forward(&mut self, bodies: &Bodies, runs: &[usize], mb: u32) -> Result<(), CodegenError> {
        let mut feeds: HashMap<ModelValue, (Option<Reg>, usize)> = HashMap::new();
        for origin in runs.iter().flat_map(|&run| &self.flow.runs[run].args) {
            if let Origin::Input(input) = *origin {
                feeds.entry(input).or_default().1 += 1;
            }
        }
        for &run in runs {
            self.before_run();
            self.forward_run(bodies, run, mb, &mut feeds)?;
            self.free();
            self.after_run();
        }
        Ok(())
    }

    fn forward_run(
        &mut self,
        bodies: &Bodies,
        index: usize,
        mb: u32,
        feeds: &mut HashMap<ModelValue, (Option<Reg>, usize)>,
    ) -> Result<(), CodegenError> {
        let (run, block) = (&self.flow.runs[index], &self.model.blocks[self.flow.runs[index].block]);
        let Some(body) = bodies.get(run.block, BodyKind::F) else { return Ok(()) };
        let mut args = Vec::new();
        for (value, origin) in forward_args(block).zip(&run.args) {
            args.push(match *origin {
                Origin::Made(made) => self.fetch(ValueKey::Value(made, mb), self.flow.maker(made, mb))?,
                Origin::Input(input) => match feeds.get(&input) {
                    Some(&(Some(reg), _)) => reg,
                    _ => {
                        let reg = self.reg(format!("{}:{mb}", self.model.values[input]), Some(block.ty(value)));
                        self.instrs.push(Instr::Feed { out: reg, input, microbatch: mb });
                        feeds.entry(input).or_default().0 = Some(reg);
                        reg
                    }
                },
            });
        }
        let mut results = Vec::new();
        for (made, &value) in run.results.iter().zip(&block[SectionKind::F].ret) {
            let name = match made {
                Some(made) => format!("{}:{mb}", self.flow.made[*made].name),
                None => format!("{}.{}:{mb}", run.name, block.value_name(value)),
            };
            results.push(self.reg(name, Some(block.ty(value))));
        }
        let keeps = !bodies.all[body].keeps.is_empty();
        let keep = keeps.then(|| self.reg(format!("{}.F:{mb}", run.name), None));
        let (call, instance, microbatch) = (run.call, run.instance, Some(mb));
        let gathered = self.gathered_for(bodies, index, body);
        let bundles = gathered.into_iter().collect();
        let given = (args.clone(), results.clone());
        self.run(
            body,
            Invocation {
                call,
                instance,
                microbatch,
                args: given.0,
                bundles,
                results: given.1,
                keep,
                ..Invocation::default()
            },
        );
        self.gathered_read(index, gathered);
        self.held.extend(keep.map(|reg| (ValueKey::Forward(index, mb), reg)));
        for (origin, reg) in run.args.iter().zip(args) {
            self.read(*origin, reg, mb, feeds);
        }
        for (place, reg) in results.into_iter().enumerate() {
            self.forward_result(index, place, reg, mb)?;
        }
        Ok(())
    }

    /// One argument has been read; the last reader releases it.
    fn read(&mut self, origin: Origin, reg: Reg, mb: u32, feeds: &mut HashMap<ModelValue, (Option<Reg>, usize)>) {
        let left = match origin {
            Origin::Input(input) => feeds.get_mut(&input).map(|(_, left)| left),
            Origin::Made(made) => self.readers_left.get_mut(&ValueKey::Value(made, mb)),
        };
        let Some(left) = left else { return };
        *left -= 1;
        if *left == 0 {
            if let Origin::Made(made) = origin {
                self.held.remove(&ValueKey::Value(made, mb));
            }
            self.release(reg);
        }
    }

    fn forward_result(&mut self, index: usize, place: usize, reg: Reg, mb: u32) -> Result<(), CodegenError> {
        let run = &self.flow.runs[index];
        let Some(made) = run.results[place] else {
            let name = total_name(self.model, self.flow, index, place);
            self.total(&name, reg);
            return Ok(());
        };
        let key = ValueKey::Value(made, mb);
        for to in self.flow.readers(made, mb) {
            self.send(to, key, reg)?;
        }
        match self.flow.local_uses(made, mb, self.rank) {
            0 => self.release(reg),
            uses => {
                self.readers_left.insert(key, uses);
                self.held.insert(key, reg);
            }
        }
        Ok(())
    }

    /// I, W or both of the runs of an item, in reverse. B goes block by block: what W needs of a block is freed before the next
    /// is begun, which holds less than all I before all W.
    pub(super) fn backward(
        &mut self,
        bodies: &Bodies,
        kind: Kind,
        runs: &[usize],
        mb: u32,
    ) -> Result<(), CodegenError> {
        for &run in runs.iter().rev() {
            self.before_run();
            let in_one = kind == Kind::B && bodies.get(self.flow.runs[run].block, BodyKind::B).is_some();
            if in_one {
                self.input_gradient(bodies, BodyKind::B, run, mb)?;
            } else if kind != Kind::W {
                self.input_gradient(bodies, BodyKind::I, run, mb)?;
            }
            self.free();
            if kind != Kind::I {
                if !in_one {
                    self.weight_gradient(bodies, run, mb)?;
                    self.free();
                }
                self.gradients_added(bodies, run);
            }
            self.after_run();
        }
        Ok(())
    }

    /// I, or B, which gives W's gradients too.
    fn input_gradient(&mut self, bodies: &Bodies, part: BodyKind, index: usize, mb: u32) -> Result<(), CodegenError> {
        let (run, block) = (&self.flow.runs[index], &self.model.blocks[self.flow.runs[index].block]);
        let Some(body) = bodies.get(run.block, part) else { return Ok(()) };
        let section = &block[SectionKind::I];
        let mut args = Vec::new();
        for ((place, _), &value) in block.differentiable_results().zip(&section.args) {
            args.push(match run.results[place] {
                Some(made) => self.cotangent(made, mb, block.ty(value))?,
                None => {
                    let name = format!("{}.{}:{mb}", run.name, block.value_name(value));
                    let out = self.reg(name, Some(block.ty(value)));
                    let mean = block.results[place].mean().unwrap_or(LossMean::Labels);
                    self.instrs.push(Instr::LossGrad { out, mean });
                    out
                }
            });
        }
        let bundle = self.bundle(ValueKey::Forward(index, mb), bodies, run.block, BodyKind::F)?;
        let slots = self.flow.slots(self.model, index);
        let mut results = Vec::new();
        for (slot, &value) in slots.iter().zip(&section.ret) {
            let name = match slot.origin {
                Origin::Made(made) => &self.flow.made[made].name,
                Origin::Input(input) => &self.model.values[input],
            };
            results.push(self.reg(format!("{name}.d:{mb}"), Some(block.ty(value))));
        }
        let keeps = !bodies.all[body].keeps.is_empty();
        let keep = keeps.then(|| self.reg(format!("{}.I:{mb}", run.name), None));
        let first = part.accumulates() && self.accumulated.insert(index);
        let gathered = self.gathered_for(bodies, index, body);
        self.run(
            body,
            Invocation {
                call: run.call,
                instance: run.instance,
                microbatch: Some(mb),
                first,
                args: args.clone(),
                bundles: bundle.into_iter().chain(gathered).collect(),
                results: results.clone(),
                keep,
            },
        );
        self.gathered_read(index, gathered);
        self.held.extend(keep.map(|reg| (ValueKey::Input(index, mb), reg)));
        args.into_iter().chain(bundle).for_each(|reg| self.release(reg));
        for (slot, reg) in slots.iter().zip(results) {
            let Origin::Made(made) = slot.origin else {
                self.release(reg);
                continue;
            };
            let key = ValueKey::Cotangent(made, slot.index, mb);
            let to = self.flow.maker(made, mb);
            if to == self.rank {
                self.held.insert(key, reg);
            } else {
                self.send(to, key, reg)?;
                self.release(reg);
            }
        }
        Ok(())
    }

    /// The cotangent of a value: those of all its readers added up in call order, whatever rank they come from, so that
    /// the bits do not depend on the cut.
    fn cotangent(&mut self, made: usize, mb: u32, ty: &Type) -> Result<Reg, CodegenError> {
        let value = &self.flow.made[made];
        let mut sum = None;
        for (index, &(run, _)) in value.cotangents.iter().enumerate() {
            if cotangent_type(self.model, self.flow, made, index) != ty {
                return Err(CodegenError::Boundary { run: value.name.clone(), what: "the type of a cotangent" });
            }
            let key = ValueKey::Cotangent(made, index, mb);
            let reg = self.fetch(key, self.flow.rank(run, mb))?;
            self.held.remove(&key);
            match sum {
                None => sum = Some(reg),
                Some(into) => self.add(into, reg),
            }
        }
        self.free();
        sum.ok_or_else(|| CodegenError::Unused { value: value.name.clone() })
    }

    fn weight_gradient(&mut self, bodies: &Bodies, index: usize, mb: u32) -> Result<(), CodegenError> {
        let run = &self.flow.runs[index];
        let Some(body) = bodies.get(run.block, BodyKind::W) else { return Ok(()) };
        let bundle = self.bundle(ValueKey::Input(index, mb), bodies, run.block, BodyKind::I)?;
        let first = self.accumulated.insert(index);
        let gathered = self.gathered_for(bodies, index, body);
        let (call, instance, bundles) = (run.call, run.instance, bundle.into_iter().chain(gathered).collect());
        self.run(body, Invocation { call, instance, microbatch: Some(mb), first, bundles, ..Invocation::default() });
        self.gathered_read(index, gathered);
        bundle.into_iter().for_each(|reg| self.release(reg));
        Ok(())
    }

    /// The bundle of an earlier section of the run, if its body saves values.
    pub(super) fn bundle(
        &mut self,
        key: ValueKey,
        bodies: &Bodies,
        block: ir::ids::BlockId,
        maker: BodyKind,
    ) -> Result<Option<Reg>, CodegenError> {
        if bodies.get(block, maker).is_none_or(|body| bodies.all[body].keeps.is_empty()) {
            return Ok(None);
        }
        let bundle = self.held.remove(&key);
        bundle
            .map(Some)
            .ok_or_else(|| CodegenError::Early { block: self.model.blocks[block].name.clone(), needs: maker.letter() })
    }
}

/// The name under which a result that is not passed on is added up: all losses are one.
pub(super) fn total_name(model: &Model, flow: &Flow<'_>, run: usize, place: usize) -> String {
    let block = &model.blocks[flow.runs[run].block];
    match block.results[place] {
        ResultKind::Loss => "loss".to_string(),
        _ => block.value_name(block[SectionKind::F].ret[place]).to_string(),
    }
}
