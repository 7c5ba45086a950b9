//! Levels 2 and 3: stages and rows of actions.

use super::cursor::{Parsed, Parser};
use super::lex::Kind as Token;
use crate::catalogue::Code;
use crate::schedule::{Action, Item, Kind, Schedule};
use crate::staged::{Stage, StageCost, StagePart, Staged};

/// The earliest start of the next part: a call and its instance.
type Next = (usize, u32);

impl Parser<'_> {
    /// `staged @name { stages }`
    pub(super) fn staged(&mut self) -> Parsed<Staged> {
        self.expect("staged")?;
        let name = self.take(Token::At, "the model's name")?.to_string();
        self.expect("{")?;
        let (mut stages, mut next) = (Vec::new(), (0, 0));
        while self.at("stage") {
            let number = stages.len();
            stages.push(self.stage(number, &mut next)?);
        }
        self.expect("}")?;
        self.no_more()?;
        Ok(Staged { name, stages })
    }

    /// `stage 0 rank 0: @embed, @layer[0..2] f=0.0012 saved=73728`
    fn stage(&mut self, number: usize, next: &mut Next) -> Parsed<Stage> {
        self.expect("stage")?;
        self.numbered(number, "stage")?;
        self.expect("rank")?;
        let mut ranks = vec![self.int("a pipeline rank")?];
        while self.eat("+") {
            ranks.push(self.int("a pipeline rank")?);
        }
        self.expect(":")?;
        let mut parts = Vec::new();
        while self.at_kind(Token::At) {
            parts.push(self.part(next)?);
            if !self.eat(",") {
                break;
            }
        }
        let mut cost = StageCost::default();
        while self.at_kind(Token::Ident) && !self.at("stage") {
            self.cost(&mut cost)?;
        }
        Ok(Stage { ranks, parts, cost })
    }

    /// Rows and stages are counted from 0 without gaps.
    fn numbered(&mut self, want: usize, what: &str) -> Parsed<()> {
        let span = self.span();
        let number: usize = self.int("its number")?;
        if number == want {
            return Ok(());
        }
        Err(self.fail(Code::UnexpectedToken, span, format!("expected {what} {want}, found {number}")))
    }

    fn cost(&mut self, cost: &mut StageCost) -> Parsed<()> {
        let span = self.span();
        let name = self.bump();
        self.expect("=")?;
        match name {
            "f" => cost.f = self.float("seconds")?,
            "i" => cost.i = self.float("seconds")?,
            "w" => cost.w = self.float("seconds")?,
            "saved" => cost.saved = self.int("bytes")?,
            "saved_for_w" => cost.saved_for_w = self.int("bytes")?,
            "state" => cost.state = self.int("bytes")?,
            _ => {
                let known = ["f", "i", "w", "saved", "saved_for_w", "state"].map(str::to_string);
                let message = format!("a stage has no attribute `{name}`");
                return Err(self.unknown(Code::UnknownAttribute, span, message, name, &known));
            }
        }
        Ok(())
    }

    /// `@layer[0..2]`: the call is the next of that block, or the one that the last part left unfinished.
    fn part(&mut self, next: &mut Next) -> Parsed<StagePart> {
        let span = self.span();
        let name = self.take(Token::At, "a block")?;
        let block = self.block_named(name, span)?;
        let stated = if self.eat("[") { Some(self.range()?) } else { None };
        if stated.is_some() {
            self.expect("]")?;
        }
        let first = stated.as_ref().map_or(0, |range| range.start);
        let calls = &self.model.calls;
        let found = (next.0..calls.len())
            .find(|&call| calls[call].block == block && (call, first) >= *next)
            .or_else(|| calls.iter().position(|call| call.block == block));
        let Some(call) = found else {
            return Err(self.fail(Code::UnknownBlock, span, format!("the model does not call `@{name}`")));
        };
        let instances = stated.unwrap_or(0..calls[call].instances());
        *next = if instances.end < calls[call].instances() { (call, instances.end) } else { (call + 1, 0) };
        Ok(StagePart { call, instances })
    }

    /// `schedule @name { rows }`
    pub(super) fn schedule(&mut self) -> Parsed<Schedule> {
        self.expect("schedule")?;
        let name = self.take(Token::At, "the schedule's name")?.to_string();
        self.expect("{")?;
        let mut rows = Vec::new();
        while self.eat("rank") {
            self.numbered(rows.len(), "rank")?;
            self.expect(":")?;
            let mut row = Vec::new();
            while !self.done() && !self.at("rank") && !self.at("}") {
                row.push(self.action()?);
            }
            rows.push(row);
        }
        self.expect("}")?;
        self.no_more()?;
        Ok(Schedule { name, rows })
    }

    /// `2F3` or `(0F3|7B1)`
    fn action(&mut self) -> Parsed<Action> {
        if !self.eat("(") {
            return Ok(Action::One(self.action_item()?));
        }
        let first = self.action_item()?;
        self.expect("|")?;
        let second = self.action_item()?;
        self.expect(")")?;
        Ok(Action::Pair(first, second))
    }

    /// `2F3:1`
    fn action_item(&mut self) -> Parsed<Item> {
        let span = self.span();
        if !self.at_kind(Token::Word) && !self.at_kind(Token::Ident) {
            return Err(self.expected("an action"));
        }
        let text = self.bump();
        let Ok(mut item) = text.parse::<Item>() else {
            let letters: Vec<String> = Kind::ALL.iter().map(|(_, letter)| letter.to_string()).collect();
            return Err(self.unknown(Code::BadAction, span, format!("`{text}` is not an action"), text, &letters));
        };
        if self.eat(":") {
            item.slice = Some(self.int("a slice")?);
        }
        Ok(item)
    }
}
