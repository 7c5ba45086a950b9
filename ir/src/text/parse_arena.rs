//! Level 4: buffer assignment. The grammar is in [`crate::arena`].

use super::cursor::{Parsed, Parser};
use super::lex::Kind;
use crate::arena::{Arena, Frame, Place, Resident, Role};
use crate::ids::Value;
use std::collections::BTreeMap;

impl Parser<'_> {
    /// `frame slot 3072 slot 512 scratch 8192 %a slot+0, %b slot 1+0, %g = %a`
    pub(super) fn frame(&mut self) -> Parsed<Frame> {
        self.expect("frame")?;
        let mut slots = Vec::new();
        while self.eat("slot") {
            slots.push(self.int("bytes")?);
        }
        self.expect("scratch")?;
        let scratch = self.int("bytes")?;
        let mut places = BTreeMap::new();
        while self.at_kind(Kind::Value) {
            let value = self.known_value()?;
            places.insert(value, self.value_place()?);
            if !self.eat(",") {
                break;
            }
        }
        Ok(Frame { slots, scratch, places })
    }

    fn known_value(&mut self) -> Parsed<Value> {
        let span = self.span();
        let name = self.take(Kind::Value, "a value")?;
        self.lookup(name, span)
    }

    fn value_place(&mut self) -> Parsed<Place> {
        if self.eat("row") {
            return Ok(Place::Row);
        }
        if self.eat("=") {
            return Ok(Place::Same(self.known_value()?));
        }
        let slot = match self.eat("slot") {
            true if self.at("+") => Some(0),
            true => Some(self.int::<u32>("the number of a slot")? as usize),
            false => None,
        };
        if slot.is_none() {
            self.expect("scratch")?;
        }
        self.expect("+")?;
        let at = self.int("bytes")?;
        Ok(slot.map_or(Place::Scratch(at), |slot| Place::Slot(slot, at)))
    }

    /// True at a register, `%x = ..`, and false at a model-state tensor, `%emb 0`: the token after the name distinguishes them.
    fn at_register(&self) -> bool {
        ["=", "+=", ","].into_iter().any(|next| self.ahead_is(1, next))
    }

    /// `memory 81920 %layer[0].w1 0, %layer[0].w1 grad 1024; lr 4096, step 4160`
    pub(super) fn arena(&mut self) -> Parsed<Arena> {
        self.expect("memory")?;
        let bytes = self.int("bytes")?;
        let host = if self.eat("host") { self.int("bytes")? } else { 0 };
        let mut residents = Vec::new();
        while self.at_kind(Kind::Value) && !self.at_register() {
            let (param, instance) = self.held_one()?;
            let role = match self.at_kind(Kind::Ident).then(|| self.bump()) {
                None => Role::Param,
                Some("grad") => Role::Gradient,
                Some(suffix) => Role::State(suffix.to_string()),
            };
            let host = self.eat("host");
            residents.push(Resident { param, instance, role, host, at: self.int("bytes")? });
            if !self.eat(",") {
                break;
            }
        }
        let mut scalars = BTreeMap::new();
        while self.eat(";") || (!scalars.is_empty() && self.eat(",")) {
            let name = self.take(Kind::Ident, "a scalar")?.to_string();
            scalars.insert(name, self.int("bytes")?);
        }
        Ok(Arena { bytes, host, residents, scalars, at: Vec::new() })
    }

    /// `at 0, 512`, or nothing.
    pub(super) fn places_at(&mut self) -> Parsed<Vec<u64>> {
        let mut places = Vec::new();
        if self.eat("at") {
            places.push(self.int("bytes")?);
            while self.eat(",") {
                places.push(self.int("bytes")?);
            }
        }
        Ok(places)
    }
}
