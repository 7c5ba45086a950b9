//! Copies of bundles to host memory and back, compiled for one rank.

use super::body::Extent;
use super::load_error::LoadError;
use super::rank_program::Action;
use super::row::{InFlight, RowLoader};
use super::run::Binding;
use comm::Communicator;
use device::backend::{Backend, HostCopy, HostDirection, Span};
use ir::arena::SavedLayout;
use ir::ids::{BodyId, Reg, Value};
use std::collections::HashMap;

/// An instance of a call, whose states are copied.
#[derive(Clone, Copy)]
pub(super) struct CallRun {
    pub(super) call: usize,
    pub(super) instance: u32,
}

/// The copy of a bundle, when it is there.
pub(super) enum CopiedBundle {
    /// Its place in host memory.
    Host(BodyId, u64),
    /// The places of its values on the device.
    Device(BodyId, HashMap<Value, u64>),
    /// States are at their dedicated places in host memory.
    Stored,
}

impl<B: Backend, C: Communicator> RowLoader<'_, '_, B, C> {
    /// Starts the copy of a bundle to host memory, at the place that the instruction states.
    ///
    /// # Errors
    /// The register holds no bundle of the device.
    pub(super) fn offload(&mut self, instr: usize, reg: Reg) -> Result<InFlight<C>, LoadError> {
        let (maker, at) = (self.places.maker(reg)?, self.places.one(instr)?);
        let (layout, mut copies) = (self.layout(maker)?, Vec::new());
        for tensor in &layout.tensors {
            let from = self.places.kept(&[reg], tensor.value).ok_or(LoadError::OffloadedElsewhere)?;
            let span = self.extent(maker, tensor.value).at(from);
            copies.push(HostCopy { span, host: (at + tensor.offset) as usize });
        }
        Ok(self.copies(copies, HostDirection::Offload, CopiedBundle::Host(maker, at)))
    }

    /// Starts the copy of a bundle back to the device, to the place that the instruction states.
    ///
    /// # Errors
    /// The register holds no bundle of host memory.
    pub(super) fn load(&mut self, instr: usize, reg: Reg) -> Result<InFlight<C>, LoadError> {
        let (maker, at, host) = (self.places.maker(reg)?, self.places.one(instr)?, self.places.host(reg)?);
        let layout = self.layout(maker)?;
        let copies = layout.tensors.iter().map(|tensor| HostCopy {
            span: self.extent(maker, tensor.value).at(at + tensor.offset),
            host: (host + tensor.offset) as usize,
        });
        let copies = copies.collect();
        let copied = CopiedBundle::Device(maker, self.loaded(maker, &layout, at));
        Ok(self.copies(copies, HostDirection::Load, copied))
    }

    /// Starts the copy of the states of a run of `U` to the device, to the place that the instruction states.
    ///
    /// # Errors
    /// The states have no places in host memory.
    pub(super) fn load_states(&mut self, instr: usize, body: BodyId, run: CallRun) -> Result<InFlight<C>, LoadError> {
        let (at, layout) = (self.places.one(instr)?, self.layout(body)?);
        let mut copies = Vec::new();
        for tensor in &layout.tensors {
            let host = self.state_on_host(body, run, tensor.value)?;
            copies.push(HostCopy { span: Span { offset: (at + tensor.offset) as usize, ..host }, host: host.offset });
        }
        let copied = CopiedBundle::Device(body, self.loaded(body, &layout, at));
        Ok(self.copies(copies, HostDirection::Load, copied))
    }

    /// Starts the copy of the states that a run of `U` has changed to their places in host memory.
    ///
    /// # Errors
    /// The register holds no states, or they have no places.
    pub(super) fn store_states(&mut self, reg: Reg, run: CallRun) -> Result<InFlight<C>, LoadError> {
        let body = self.places.maker(reg)?;
        let mut copies = Vec::new();
        for tensor in self.layout(body)?.tensors {
            let from = self.places.kept(&[reg], tensor.value).ok_or(LoadError::StatesElsewhere)?;
            let host = self.state_on_host(body, run, tensor.value)?;
            copies.push(HostCopy { span: Span { offset: from as usize, ..host }, host: host.offset });
        }
        Ok(self.copies(copies, HostDirection::Offload, CopiedBundle::Stored))
    }

    /// The place of a state in host memory.
    fn state_on_host(&mut self, body: BodyId, run: CallRun, value: Value) -> Result<Span, LoadError> {
        let CallRun { call, instance } = run;
        let binding = Binding { model: self.loader.model, body: &self.program.bodies[body], call, instance };
        self.resident(&binding, value)
    }

    /// The places of the values of a bundle that comes to the device.
    fn loaded(&self, maker: BodyId, layout: &SavedLayout, at: u64) -> HashMap<Value, u64> {
        let saved = self.program.bodies[maker].keeps.iter().zip(&layout.saved);
        saved.map(|(&value, &tensor)| (value, at + layout.tensors[tensor].offset)).collect()
    }

    fn copies(&mut self, copies: Vec<HostCopy>, direction: HostDirection, copied: CopiedBundle) -> InFlight<C> {
        let completion = self.acquire_completion();
        self.rank_program.actions.push(Action::StartCopies { copies, direction, completion });
        InFlight::Copies(completion, copied)
    }

    /// The copy of a bundle is in a register.
    ///
    /// # Errors
    /// There is no register for it.
    pub(super) fn copied(&mut self, result: Option<Reg>, copied: CopiedBundle) -> Result<(), LoadError> {
        match (copied, result) {
            (CopiedBundle::Host(maker, at), Some(reg)) => self.places.set_host(reg, maker, at),
            (CopiedBundle::Device(maker, values), Some(reg)) => self.places.set_bundle(reg, maker, values),
            (CopiedBundle::Stored, _) => {}
            (CopiedBundle::Host(..) | CopiedBundle::Device(..), None) => return Err(LoadError::NoResult("a copy")),
        }
        Ok(())
    }

    /// The tensors of a bundle on the device.
    pub(super) fn bundle(&self, reg: Reg) -> Vec<Span> {
        let Ok(maker) = self.places.maker(reg) else { return Vec::new() };
        self.places.bundle(reg).into_iter().map(|(value, at)| self.extent(maker, value).at(at)).collect()
    }

    fn layout(&self, maker: BodyId) -> Result<SavedLayout, LoadError> {
        let body = &self.program.bodies[maker];
        let frame = body.frame.as_ref().ok_or_else(|| LoadError::NoFrame { body: body.name.clone() })?;
        Ok(body.saved_layout(frame, &self.loader.model.mesh))
    }

    fn extent(&self, maker: BodyId, value: Value) -> Extent {
        let ty = &self.program.bodies[maker].values[value].ty;
        Extent::of(ty, &self.loader.model.mesh, &self.loader.coordinates)
    }
}
