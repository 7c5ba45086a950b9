//! Bytes that a program frees, since nothing holds them any more, by instruction of a row and by step of a body. They are filled with poison
//! where [`Options::poison`](super::Options::poison) asks for it.

use super::poison::bytes;
use device::backend::Span;
use ir::arena::Place;
use ir::ids::{Reg, Token, Value};
use ir::program::{Body, BodyInstr};
use std::collections::HashMap;

/// A holder of bytes of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Holder {
    /// A register, of a tensor or a bundle.
    Register(Reg),
    /// An operation in flight.
    InFlight(Token),
}

/// The bytes that each holder of a row holds.
#[derive(Default)]
pub(super) struct Holders(HashMap<Holder, Vec<Span>>);

impl Holders {
    /// Lets a holder hold these bytes and no others. Returns what nobody holds any more.
    pub(super) fn hold(&mut self, holder: Holder, spans: Vec<Span>) -> Vec<Span> {
        let before = self.0.insert(holder, spans).unwrap_or_default();
        before.into_iter().flat_map(|span| self.rest(span)).collect()
    }

    /// Lets a holder hold nothing. Returns what nobody holds any more.
    pub(super) fn release(&mut self, holder: Holder) -> Vec<Span> {
        let before = self.0.remove(&holder).unwrap_or_default();
        before.into_iter().flat_map(|span| self.rest(span)).collect()
    }

    /// The bytes that a holder holds.
    pub(super) fn held(&self, holder: Holder) -> Vec<Span> {
        self.0.get(&holder).cloned().unwrap_or_default()
    }

    /// The parts of a place that nobody holds.
    fn rest(&self, span: Span) -> Vec<Span> {
        let mut held: Vec<Span> = self.0.values().flatten().copied().filter(|other| other.meets(span)).collect();
        held.sort_by_key(|other| other.offset);
        let (mut rest, mut at, end) = (Vec::new(), span.offset, span.offset + span.bytes());
        for other in held {
            if other.offset > at {
                rest.push(bytes(at, other.offset - at));
            }
            at = at.max(other.offset + other.bytes());
        }
        if at < end {
            rest.push(bytes(at, end - at));
        }
        rest
    }
}

/// The values of a body in whose places nothing is left, each with the number of the last step before. Arguments are the row's to free.
pub(super) fn freed(body: &Body) -> Vec<(u32, Value)> {
    let mut living: HashMap<Value, u32> = HashMap::new();
    let (mut freed, mut steps) = (Vec::new(), 0);
    for (at, instr) in body.instrs.iter().enumerate() {
        let defined = match instr {
            BodyInstr::Compute(_) | BodyInstr::Fused(_) => instr.defines().to_vec(),
            // What a transfer makes has its place from the start on.
            BodyInstr::Start { token, .. } => awaited(&body.instrs[at..], *token),
            BodyInstr::Wait { .. } => Vec::new(),
            BodyInstr::Free(values) => {
                for root in values.iter().map(|&value| root(body, value)) {
                    let left = living.get_mut(&root).map(|count| {
                        *count -= 1;
                        *count
                    });
                    if left == Some(0) && steps > 0 {
                        living.remove(&root);
                        freed.push((steps - 1, root));
                    }
                }
                continue;
            }
        };
        for root in defined.into_iter().map(|value| root(body, value)) {
            if body.args.iter().all(|arg| arg.value != root) {
                *living.entry(root).or_default() += 1;
            }
        }
        steps += 1;
    }
    freed
}

/// The results of the next wait for a token.
fn awaited(instrs: &[BodyInstr], token: Token) -> Vec<Value> {
    let results = instrs.iter().find_map(|instr| match instr {
        BodyInstr::Wait { token: awaited, results } if *awaited == token => Some(results.clone()),
        _ => None,
    });
    results.unwrap_or_default()
}

/// The value whose place a value has: itself, unless the frame names another.
fn root(body: &Body, value: Value) -> Value {
    let Some(frame) = &body.frame else { return value };
    let chain = std::iter::successors(Some(value), |value| match frame.places.get(value) {
        Some(Place::Same(other)) if other != value => Some(*other),
        _ => None,
    });
    chain.take(body.values.len()).last().unwrap_or(value)
}

/// The places that are freed after a step, or after an action.
pub(super) fn after(freed: &[(u32, Span)], number: usize) -> impl Iterator<Item = Span> + '_ {
    let from = freed.partition_point(|(at, _)| (*at as usize) < number);
    freed[from..].iter().take_while(move |(at, _)| *at as usize == number).map(|(_, span)| *span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::entity::EntityRef;

    #[test]
    fn bytes_are_free_when_their_last_holder_goes() {
        let [a, b, flight] =
            [Holder::Register(Reg::new(0)), Holder::Register(Reg::new(1)), Holder::InFlight(Token::new(0))];
        let mut holders = Holders::default();
        assert_eq!(holders.hold(a, vec![bytes(0, 64), bytes(128, 64)]), []);
        assert_eq!(holders.hold(b, vec![bytes(16, 16)]), []);
        assert_eq!(holders.hold(flight, vec![bytes(128, 64)]), []);
        assert_eq!(holders.held(b), [bytes(16, 16)]);
        // The middle of the first place and all of the second are held by others.
        assert_eq!(holders.release(a), [bytes(0, 16), bytes(32, 32)]);
        assert_eq!(holders.release(flight), [bytes(128, 64)]);
        // A register that moves leaves its old place.
        assert_eq!(holders.hold(b, vec![bytes(256, 16)]), [bytes(16, 16)]);
        assert_eq!(holders.release(b), [bytes(256, 16)]);
        assert_eq!(holders.release(b), []);
    }

    #[test]
    fn places_are_found_by_the_step_before_them() {
        let freed = [(1, bytes(0, 4)), (3, bytes(4, 4)), (3, bytes(8, 4))];
        let at = |number| after(&freed, number).map(|span| span.offset).collect::<Vec<_>>();
        assert_eq!([0, 1, 2, 3, 4].map(at), [vec![], vec![0], vec![], vec![4, 8], vec![]]);
    }
}
