//! Places for the blocks of a row.

use super::needs::{At, Needs};
use super::row::Layouts;
use ir::program::{Class, Instr};

/// Places for all that a row needs, from 0.
pub(super) struct Packed {
    pub(super) bytes: u64,
    /// Per instruction.
    pub(super) at: Vec<Vec<u64>>,
}

struct Living {
    at: u64,
    to: u64,
    end: usize,
}

pub(super) fn pack(needs: &Needs, layouts: &Layouts, class: &Class) -> Packed {
    let mut places = vec![0; needs.blocks.len()];
    let mut living: Vec<Living> = Vec::new();
    let mut blocks = needs.blocks.iter().enumerate().peekable();
    let mut bytes = 0;
    let mut scratches = vec![0; class.instrs.len()];
    for now in 0..class.instrs.len() {
        living.retain(|part| part.end > now);
        let mut place = |size: u64, living: &[Living]| {
            let mut at = 0;
            for part in living {
                if at + size <= part.at {
                    break;
                }
                at = at.max(part.to);
            }
            bytes = bytes.max(at + size);
            at
        };
        while let Some((index, block)) = blocks.next_if(|(_, block)| block.start == now) {
            places[index] = place(block.size, &living);
            for part in &needs.parts[block.parts.clone()] {
                let at = places[index] + part.offset;
                let slot = living.partition_point(|other| other.at <= at);
                living.insert(slot, Living { at, to: at + part.size, end: part.end });
            }
        }
        if let Instr::Run { token: None, body, .. } = &class.instrs[now] {
            scratches[now] = place(layouts[*body].frame.scratch, &living);
        }
    }
    let at = |now: usize, at: &At| match *at {
        At::Part(part) => places[needs.parts[part].block] + needs.parts[part].offset,
        At::Block(block) => places[block],
        At::Scratch => scratches[now],
        At::Nowhere => 0,
    };
    let at =
        needs.at.iter().enumerate().map(|(now, places)| places.iter().map(|place| at(now, place)).collect()).collect();
    Packed { bytes, at }
}
