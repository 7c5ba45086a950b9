//! Persistent tensors of a rank: its shards of parameters, of their optimizer states, and of gradient sums.
//!
//! Initial values depend on name and logical index, so every sharding starts from the same ones. Element `i` of a parameter
//! is `std normal(key, i)` where the key is the FNV-1a hash of the seed and the instance name. States start at zero, except
//! a `master`, which starts as these numbers before they are rounded to the parameter's format.

use crate::load_error::LoadError;
use comm::{Region, RegionPiece, extract, pieces};
use device::backend::{Memory, Span};
use device::host::{numbers, stored};
use ir::graph::{GRADIENT, Init, Model, ParamInstance};
use ir::mesh::Mesh;
use ir::types::{PartialKind, Type};
use kernels::cpu::Par;
use kernels::cpu::dropout::{normals, uniform};
use std::collections::BTreeMap;

pub use device::random::key;
pub use ir::arena::{Resident, Role};

/// Elements that a thread could touch while it draws a number.
const DRAW: usize = 16;

/// The suffix of the state that starts as a copy of its parameter.
pub const MASTER: &str = "master";

/// A global tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct GlobalTensor {
    /// Its sizes.
    pub sizes: Vec<u64>,
    /// Its elements, row-major.
    pub data: Vec<f32>,
}

/// A persistent tensor of a rank.
#[derive(Clone, PartialEq, Debug)]
pub struct StateSlot {
    /// Its global name: `layer.3.w1`, `layer.3.w1.m`, `layer.3.w1.grad`.
    pub name: String,
    /// Parameter, optimizer state or gradient.
    pub role: Role,
    /// Its type.
    pub ty: Type,
    /// The rank's part.
    pub region: Region,
    /// Its location in the arena of the device, or in that of host memory.
    pub span: Span,
    /// True if it is in host memory.
    pub host: bool,
    /// The instance name of the parameter.
    pub param: String,
    init: Init,
}

impl StateSlot {
    /// True for the f32 copy of a parameter that the optimizer updates.
    pub fn is_master(&self) -> bool {
        matches!(&self.role, Role::State(suffix) if suffix == MASTER)
    }

    /// Writes the rank's part, rounded to the format of the tensor.
    ///
    /// # Panics
    /// If it has another number of elements.
    pub fn put(&self, memory: &mut (impl Memory + ?Sized), part: &[f32]) {
        let bytes = stored(self.span.dtype, part);
        if self.host { memory.write_host(self.span, &bytes) } else { memory.write(self.span, &bytes) }
    }

    /// The numbers of the rank's part.
    pub fn get(&self, memory: &mut (impl Memory + ?Sized)) -> Vec<f32> {
        numbers(self.span.dtype, &self.bytes(memory))
    }

    /// The bytes that store the rank's part.
    pub fn bytes(&self, memory: &mut (impl Memory + ?Sized)) -> Vec<u8> {
        let mut bytes = vec![0; self.span.bytes()];
        if self.host {
            memory.read_host(self.span, &mut bytes)
        } else {
            memory.read(self.span, &mut bytes)
        }
        bytes
    }
}

/// A persistent tensor of a rank with the elements of the rank's shard.
pub struct StateShard {
    /// Which.
    pub slot: StateSlot,
    /// The rank's part.
    pub data: Vec<f32>,
}

/// All persistent tensors of a rank.
#[derive(Default)]
pub struct State {
    slots: Vec<StateSlot>,
}

impl State {
    /// A tensor that lives from step to step, at its place; the first mention adds it.
    ///
    /// # Errors
    /// It was mentioned with another sharding or in another place.
    pub fn slot(
        &mut self,
        model: &Model,
        coordinates: &[u64],
        resident: &Resident,
        ty: &Type,
    ) -> Result<&StateSlot, LoadError> {
        let Resident { param, instance, ref role, host, at } = *resident;
        let name = name(model, (param, instance), role);
        let param = &model.params[param];
        let region = Region::of(ty, &model.mesh, coordinates);
        let span = Span::new(ty.dtype, at as usize, region.len());
        if let Some(known) = self.slots.iter().position(|slot| slot.name == name) {
            let known = &self.slots[known];
            return match (known.region == region, (known.span, known.host) == (span, host)) {
                (true, true) => Ok(known),
                (false, _) => Err(LoadError::TwoShardings { name }),
                (true, false) => Err(LoadError::TwoPlaces { name }),
            };
        }
        let init = match role {
            Role::Param => param.init,
            Role::State(suffix) if suffix == MASTER => param.init,
            Role::State(_) | Role::Gradient => Init::Constant(0.0),
        };
        let (role, ty, param) = (role.clone(), ty.clone(), param.instance_name(instance));
        self.slots.push(StateSlot { name, role, ty, region, span, host, param, init });
        Ok(&self.slots[self.slots.len() - 1])
    }

    /// A tensor that was mentioned.
    pub fn find(&self, name: &str) -> Option<&StateSlot> {
        self.slots.iter().find(|slot| slot.name == name)
    }

    /// All persistent tensors.
    pub fn slots(&self) -> &[StateSlot] {
        &self.slots
    }

    /// Sets all tensors to their first numbers, which `par` threads draw.
    pub fn reset(&self, memory: &mut impl Memory, seed: u64, par: Par) {
        // A master has its parameter's numbers.
        let mut last: Option<(&str, &Region)> = None;
        let mut part = Vec::new();
        for slot in &self.slots {
            let drawn = Some((slot.param.as_str(), &slot.region));
            match slot.init {
                Init::Normal(_) if last == drawn => {}
                Init::Normal(std) => {
                    let key = key(&[&seed.to_le_bytes(), slot.param.as_bytes()]);
                    part.clear();
                    part.resize(slot.region.len(), 0.0);
                    fill(&slot.ty, &slot.region, &mut part, par, |first, row| {
                        normals(key, first, row);
                        row.iter_mut().for_each(|value| *value *= std as f32);
                    });
                    last = drawn;
                }
                Init::Constant(value) => {
                    part.clear();
                    part.resize(slot.region.len(), value as f32);
                    last = None;
                }
                init => {
                    let (width, key) = (
                        slot.ty.sizes().last().copied().unwrap_or(1),
                        key(&[&seed.to_le_bytes(), slot.param.as_bytes()]),
                    );
                    part.clear();
                    part.resize(slot.region.len(), 0.0);
                    fill(&slot.ty, &slot.region, &mut part, par, |first, row| {
                        (first..).zip(row).for_each(|(place, value)| {
                            *value = init.element(width, place, || uniform(key, place)) as f32;
                        });
                    });
                    last = None;
                }
            }
            slot.put(memory, &part);
        }
    }

    /// The tensors that are wanted, and their elements.
    pub fn export(&self, memory: &mut impl Memory, wanted: fn(&StateSlot) -> bool) -> Vec<StateShard> {
        let slots = self.slots.iter().filter(|slot| wanted(slot));
        slots.map(|slot| StateShard { slot: slot.clone(), data: slot.get(memory) }).collect()
    }

    /// Replaces the rank's parts of the tensors that are named. A `master` that is not named follows its parameter.
    ///
    /// # Panics
    /// If a tensor has not its size.
    pub fn import(&self, memory: &mut impl Memory, tensors: &BTreeMap<String, Vec<f32>>) {
        for slot in &self.slots {
            let followed = slot.is_master().then(|| tensors.get(&slot.param)).flatten();
            if let Some(whole) = tensors.get(&slot.name).or(followed) {
                let mut part = vec![0.0; slot.region.len()];
                extract(whole, &slot.ty, &slot.region, &mut part);
                slot.put(memory, &part);
            }
        }
    }
}

/// The global name of a tensor of a parameter instance.
pub fn name(model: &Model, (param, instance): ParamInstance, role: &Role) -> String {
    let base = model.params[param].instance_name(instance);
    match role {
        Role::Param => base,
        Role::State(suffix) => format!("{base}.{suffix}"),
        Role::Gradient => format!("{base}{GRADIENT}"),
    }
}

/// True if a rank's part counts when a tensor is assembled: one rank for each part, and all ranks with a term of a partial sum.
pub(crate) fn counts(mesh: &Mesh, ty: &Type, coordinates: &[u64]) -> bool {
    let telling = ty.sharded_axes().union(&ty.partial_axes());
    mesh.tensor_axes()
        .without(&telling)
        .iter()
        .all(|axis| mesh.index_along(&ir::mesh::Axes::one(axis), coordinates) == 0)
}

/// A rank's part of a tensor, apart from its rank: what is assembled of it, and where.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct StatePieces {
    pub(crate) rank: u32,
    /// Its pipeline rank: if several hold a tensor, the first counts.
    stage: u64,
    name: String,
    sizes: Vec<u64>,
    /// True if it is added to the parts of others.
    adds: bool,
    /// None if another rank has the same part.
    pieces: Vec<RegionPiece>,
    data: Vec<f32>,
}

impl StatePieces {
    pub(crate) fn of(mesh: &Mesh, rank: usize, StateShard { slot, data }: StateShard) -> StatePieces {
        let coordinates = mesh.coordinates(rank as u64);
        let stage = mesh.pipeline().map_or(0, |pp| mesh.index_along(&ir::mesh::Axes::one(pp), &coordinates));
        let counts = counts(mesh, &slot.ty, &coordinates);
        StatePieces {
            rank: rank as u32,
            stage,
            sizes: slot.ty.sizes(),
            adds: slot.ty.partial.as_ref().is_some_and(|partial| partial.kind == PartialKind::Sum),
            pieces: if counts { pieces(&slot.ty, &slot.region) } else { Vec::new() },
            data: if counts { data } else { Vec::new() },
            name: slot.name,
        }
    }

    /// Its bytes, for other processes.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut words = vec![u64::from(self.rank), self.stage, u64::from(self.adds)];
        let counts = [self.name.len(), self.sizes.len(), self.pieces.len(), self.data.len()];
        words.extend(counts.map(|count| count as u64));
        words.extend(&self.sizes);
        words.extend(self.pieces.iter().flat_map(|piece| [piece.whole, piece.part, piece.len].map(|at| at as u64)));
        let words = words.into_iter().flat_map(u64::to_le_bytes);
        let data = self.data.iter().flat_map(|number| number.to_le_bytes());
        words.chain(self.name.bytes()).chain(data).collect()
    }

    /// The parts that another process has written, up to the first that is none.
    pub(crate) fn read_all(mut bytes: &[u8]) -> Vec<StatePieces> {
        std::iter::from_fn(|| StatePieces::read(&mut bytes)).collect()
    }

    fn read(bytes: &mut &[u8]) -> Option<StatePieces> {
        let head: [u64; 7] = take_words(bytes, 7)?.try_into().ok()?;
        let [rank, stage, adds, name, sizes, pieces, data] = head;
        let (sizes, pieces) = (take_words(bytes, sizes)?, take_words(bytes, pieces.checked_mul(3)?)?);
        let pieces = pieces.as_chunks::<3>().0.iter().map(|words| {
            let [whole, part, len] = words.map(|word| word as usize);
            RegionPiece { whole, part, len }
        });
        let pieces = pieces.collect();
        let name = String::from_utf8(take(bytes, name)?.to_vec()).ok()?;
        let (numbers, _) = take(bytes, data.checked_mul(4)?)?.as_chunks::<4>();
        let data = numbers.iter().map(|number| f32::from_le_bytes(*number)).collect();
        Some(StatePieces { rank: rank as u32, stage, name, sizes, adds: adds == 1, pieces, data })
    }

    /// Copies it into the unsharded tensor, or adds it if the tensor is partial.
    fn put(&self, whole: &mut [f32]) {
        for piece in &self.pieces {
            let (part, whole) = (&self.data[piece.part..][..piece.len], &mut whole[piece.whole..][..piece.len]);
            match self.adds {
                true => whole.iter_mut().zip(part).for_each(|(a, b)| *a += b),
                false => whole.copy_from_slice(part),
            }
        }
    }
}

/// The next bytes of a message; none if there are fewer.
fn take<'a>(bytes: &mut &'a [u8], count: u64) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(usize::try_from(count).ok()?)?;
    *bytes = rest;
    Some(head)
}

fn take_words(bytes: &mut &[u8], count: u64) -> Option<Vec<u64>> {
    let (words, _) = take(bytes, count.checked_mul(8)?)?.as_chunks::<8>();
    Some(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// Assembles the ranks' parts of tensors, by name; the parts are in the order of ranks.
pub(crate) fn gather(parts: Vec<StatePieces>) -> BTreeMap<String, GlobalTensor> {
    let mut wholes = BTreeMap::new();
    let mut stages: BTreeMap<String, u64> = BTreeMap::new();
    for part in parts {
        let holder = *stages.entry(part.name.clone()).or_insert(part.stage);
        let whole = wholes.entry(part.name.clone()).or_insert_with(|| {
            let elements = part.sizes.iter().product::<u64>() as usize;
            GlobalTensor { data: vec![0.0; elements], sizes: part.sizes.clone() }
        });
        if holder == part.stage {
            part.put(&mut whole.data);
        }
    }
    wholes
}

/// Sets rows of a rank's part to what `draw` gives from the linear index in the whole tensor on.
fn fill(ty: &Type, region: &Region, part: &mut [f32], par: Par, draw: impl Fn(u64, &mut [f32]) + Sync) {
    let whole = ty.sizes();
    let width = region.sizes.last().copied().unwrap_or(1);
    par.ranges(part.len(), DRAW, (part, 1), &|range, mut part| {
        let mut at = region.run.origin as usize + range.start;
        while !part.is_empty() {
            let (row, rest) = part.split_at_mut(part.len().min(width - at % width));
            draw(index(&whole, region, at), row);
            at += row.len();
            part = rest;
        }
    });
}

/// The index in a tensor of these sizes of an element of a region.
fn index(sizes: &[u64], region: &Region, element: usize) -> u64 {
    let (mut rest, mut index, mut stride) = (element, 0, 1);
    for dim in (0..sizes.len()).rev() {
        index += (region.origin[dim] + rest % region.sizes[dim]) as u64 * stride;
        rest /= region.sizes[dim];
        stride *= sizes[dim];
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpu::Cpu;
    use device::backend::Backend;
    use ir::entity::EntityRef;
    use ir::graph::{Param, Span};
    use ir::ids::{AxisId, ParamId};
    use ir::types::DType;
    use kernels::cpu::dropout::normal;

    fn model(ty: Type) -> Model {
        let mut model = Model { mesh: Mesh::new("m", &[("a", 2), ("b", 3)]), ..Model::default() };
        model.params.push(Param {
            name: "w".to_string(),
            field: None,
            count: None,
            ty,
            init: Init::Normal(0.5),
            decay: true,
            frozen: false,
            part_of: None,
            comments: Vec::new(),
            span: Span::default(),
        });
        model
    }

    #[test]
    fn every_sharding_starts_from_the_same_numbers() {
        let mut whole = Vec::new();
        for (dims, storage) in
            [([&[][..], &[]], &[][..]), ([&[0], &[1]], &[]), ([&[1, 0], &[]], &[]), ([&[], &[1]], &[0])]
        {
            let mut ty = Type::of(DType::F32, &[5, 7]);
            let axes = |ids: &[usize]| ids.iter().map(|&id| AxisId::new(id)).collect();
            ty.dims.iter_mut().zip(dims).for_each(|(dim, ids)| dim.axes = axes(ids));
            ty.storage = axes(storage);
            let model = model(ty.clone());
            let owner = (ParamId::new(0), 0);
            let slots = |rank| {
                let (mut state, mut backend) = (State::default(), Cpu::new(1));
                let roles = [Role::Param, Role::State("m".to_string())];
                // The state is in host memory.
                for (role, host) in roles.into_iter().zip([false, true]) {
                    let resident = Resident { param: owner.0, instance: owner.1, role, host, at: 0 };
                    state.slot(&model, &model.mesh.coordinates(rank), &resident, &ty).unwrap();
                }
                backend.reserve(192).unwrap();
                backend.reserve_host(192).unwrap();
                state.reset(&mut backend, 7, Par(2));
                state.export(&mut backend, |_| true)
            };
            let of = |rank| slots(rank).into_iter().map(move |shard| (rank as usize, shard));
            let parts = (0..6).flat_map(of).map(|(rank, shard)| StatePieces::of(&model.mesh, rank, shard));
            let parts: Vec<StatePieces> = parts.collect();
            let bytes: Vec<u8> = parts.iter().flat_map(StatePieces::write).collect();
            assert_eq!(StatePieces::read_all(&bytes), parts);
            let gathered = gather(parts);
            assert!(gathered["w.m"].data.iter().all(|x| *x == 0.0));
            whole.push(gathered["w"].clone());
        }
        let key = key(&[&7u64.to_le_bytes(), b"w"]);
        assert!(whole[0].data.iter().enumerate().all(|(i, x)| *x == 0.5 * normal(key, i as u64)));
        assert!(whole.iter().all(|other| *other == whole[0]));
    }
}
