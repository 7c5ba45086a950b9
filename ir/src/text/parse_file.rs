//! A file: its items, found first and read in the order in which they need each other. A wrong item does not hide others.

use super::File;
use super::cursor::{Parsed, Parser};
use super::lex::Kind;
use crate::catalogue::Code;
use crate::diag::{Diagnostic, Diagnostics};
use crate::dim_role::DimRole;
use crate::graph::{Span, Unit};
use crate::mesh::{Axes, Axis, Group};
use crate::program::Program;
use crate::schedule::Schedule;
use crate::staged::Staged;
use crate::types::DimName;
use std::ops::Range;

/// The items in the order in which they are read: each needs those before it. With each, true if a file has at most one.
const ITEMS: [(&str, bool); 10] = [
    ("mesh", true),
    ("dims", true),
    ("unit", false),
    ("param", false),
    ("block", false),
    ("model", true),
    ("step", true),
    ("staged", true),
    ("schedule", true),
    ("program", true),
];

/// Text that begins like an item but is not one.
const STRANGER: &str = "";

#[derive(Default)]
struct Later {
    staged: Option<Staged>,
    schedule: Option<Schedule>,
    program: Option<Program>,
}

/// Parses a file.
pub(super) fn parse(source: &str) -> Result<File, Diagnostics> {
    let mut parser = Parser::new(source);
    let items = parser.items();
    let mut later = Later::default();
    let mut head = Vec::new();
    if let Some((_, first)) = items.first() {
        parser.enter(first.clone());
        head = parser.take_comments();
    }
    for (keyword, single) in ITEMS {
        let same: Vec<Range<usize>> =
            items.iter().filter(|(word, _)| *word == keyword).map(|(_, r)| r.clone()).collect();
        for (number, range) in same.into_iter().enumerate() {
            parser.enter(range);
            let span = parser.span();
            if single && number > 0 {
                parser.fail(Code::DuplicateItem, span, format!("a second `{keyword}`; a file has at most one"));
            } else {
                // The diagnostics already have the reason.
                let _ = parser.item(keyword, &mut later);
            }
        }
    }
    let mut model = std::mem::take(&mut parser.model);
    head.append(&mut parser.loose_comments);
    model.comments = head;
    model.trailing_comments = parser.trailing_comments();
    let Later { staged, schedule, program } = later;
    std::mem::take(&mut parser.diags).into_result(File { model, staged, schedule, program })
}

impl Parser<'_> {
    /// The items: keyword and tokens of each.
    fn items(&mut self) -> Vec<(&'static str, Range<usize>)> {
        let mut starts: Vec<(&'static str, usize)> = Vec::new();
        let mut strangers = Vec::new();
        let mut depth = 0i32;
        for (place, token) in self.tokens().iter().enumerate() {
            let keyword = ITEMS.iter().find(|(word, _)| token.kind == Kind::Ident && *word == token.text);
            if let (Some((word, _)), true) = (keyword, token.flush || (token.first && depth == 0)) {
                starts.push((word, place));
                depth = 0;
            } else if token.flush && depth == 0 && token.kind != Kind::End {
                strangers.push(place);
                // Successive unknown items are reported once.
                if starts.last().is_none_or(|(word, _)| *word != STRANGER) {
                    starts.push((STRANGER, place));
                }
            }
            match (token.kind, token.text) {
                (Kind::Punct, "(" | "[" | "{") => depth += 1,
                (Kind::Punct, ")" | "]" | "}") => depth -= 1,
                _ => {}
            }
        }
        let end = self.tokens().len() - 1;
        if end > 0 && starts.first().is_none_or(|(_, place)| *place > 0) {
            strangers.push(0);
        }
        let words: Vec<String> = ITEMS.iter().map(|(word, _)| word.to_string()).collect();
        for place in strangers {
            let (span, text) = (self.span_of(place), self.tokens()[place].text);
            self.unknown(Code::UnknownItem, span, format!("unknown item `{text}`"), text, &words);
        }
        let ends: Vec<usize> = starts.iter().skip(1).map(|(_, place)| *place).chain([end]).collect();
        starts.into_iter().zip(ends).map(|((word, start), end)| (word, start..end)).collect()
    }

    fn item(&mut self, keyword: &str, later: &mut Later) -> Parsed<()> {
        match keyword {
            "mesh" => self.mesh(),
            "dims" => self.dims(),
            "unit" => self.unit(),
            "param" => self.param(),
            "block" => self.block(),
            "model" => self.model(),
            "step" => self.step(),
            "staged" => self.staged().map(|staged| later.staged = Some(staged)),
            "schedule" => self.schedule().map(|schedule| later.schedule = Some(schedule)),
            _ => self.program().map(|program| later.program = Some(program)),
        }
    }

    /// Checks that the item ends here.
    pub(super) fn no_more(&mut self) -> Parsed<()> {
        if self.done() { Ok(()) } else { Err(self.expected("the end of the item")) }
    }

    /// `mesh @pod = [pp=2, edp=2, ep=2] where dp=[edp,ep]`
    fn mesh(&mut self) -> Parsed<()> {
        self.expect("mesh")?;
        self.model.has_mesh = true;
        self.model.mesh.name = self.take(Kind::At, "the mesh's name")?.to_string();
        self.expect("=")?;
        self.expect("[")?;
        self.list("]", |p| {
            let span = p.span();
            let name = p.take(Kind::Ident, "an axis")?;
            p.fresh_axis(name, span)?;
            p.expect("=")?;
            let size: u64 = p.int("a size")?;
            if size == 0 {
                return Err(p.fail(Code::BadMesh, span, format!("`{name}` has no devices")));
            }
            p.model.mesh.axes.push(Axis { name: name.to_string(), size });
            Ok(())
        })?;
        if self.eat("where") {
            while !self.done() {
                self.group()?;
                if !self.eat(",") {
                    break;
                }
            }
        }
        self.no_more()
    }

    fn fresh_axis(&mut self, name: &str, span: Span) -> Parsed<()> {
        match self.model.mesh.lookup(name) {
            Some(_) => Err(self.fail(Code::BadMesh, span, format!("the mesh already has `{name}`"))),
            None => Ok(()),
        }
    }

    /// `dp=[edp,ep]`
    fn group(&mut self) -> Parsed<()> {
        let span = self.span();
        let name = self.take(Kind::Ident, "a group")?;
        self.fresh_axis(name, span)?;
        self.expect("=")?;
        self.expect("[")?;
        let mut axes = Axes::none();
        self.list("]", |p| {
            let span = p.span();
            let member = p.take(Kind::Ident, "an axis")?;
            let found = p.axes_named(member, span)?;
            if !found.is_disjoint(&axes) {
                return Err(p.fail(Code::AxisTwice, span, format!("group `{name}` has `{member}` twice")));
            }
            axes = axes.union(&found);
            Ok(())
        })?;
        if axes.is_empty() {
            return Err(self.fail(Code::BadMesh, span, format!("the group `{name}` has no axes")));
        }
        self.model.mesh.groups.push(Group { name: name.to_string(), axes });
        Ok(())
    }

    /// `dims [b=8, g indivisible=8, c<=64, pairs=2 no_role]`
    fn dims(&mut self) -> Parsed<()> {
        self.expect("dims")?;
        self.expect("[")?;
        self.list("]", |p| {
            let span = p.span();
            let name = p.take(Kind::Ident, "a dim")?;
            if p.known.dims.contains_key(name) {
                return Err(p.fail(Code::Redefinition, span, format!("dim `{name}` is already defined")));
            }
            let indivisible = p.eat("indivisible");
            let bounded = p.eat("<=");
            if !bounded {
                p.expect("=")?;
            }
            let size: u64 = p.int("a size")?;
            if size == 0 {
                return Err(p.fail(Code::BadNumber, span, format!("the size of `{name}` must be at least 1")));
            }
            let role = p.role(name, span)?;
            let id = p.model.dims.push(DimName { name: name.to_string(), size, role, indivisible, bounded });
            p.known.dims.insert(name.to_string(), id);
            Ok(())
        })?;
        self.no_more()
    }

    /// The role of a dim. Only one dim of a model has a role that is unique.
    fn role(&mut self, name: &str, span: Span) -> Parsed<Option<DimRole>> {
        let role = self.stated_role(name)?;
        let Some(unique) = role.filter(|role| role.is_unique()) else { return Ok(role) };
        let Some(other) = self.model.dim_of(unique) else { return Ok(role) };
        let message = format!("dims `{}` and `{name}` both have the role `{}`", other.name, unique.word());
        let help = format!("write `{}` behind the size of one of them", DimRole::NONE);
        Err(self.report(Diagnostic::new(Code::RoleTwice, message).at(span).help(help)))
    }

    /// The role of the word behind a dim's size, or else of its name.
    fn stated_role(&mut self, name: &str) -> Parsed<Option<DimRole>> {
        let is_next_dim = ["=", "<=", "indivisible"].iter().any(|token| self.ahead_is(1, token));
        if !self.at_kind(Kind::Ident) || is_next_dim {
            return Ok(DimRole::of_name(name));
        }
        let span = self.span();
        let word = self.take(Kind::Ident, "a role")?;
        let role = DimRole::from_word(word);
        if role.is_none() && word != DimRole::NONE {
            let known: Vec<String> = DimRole::words().chain([DimRole::NONE]).map(str::to_string).collect();
            return Err(self.unknown(Code::UnknownRole, span, format!("there is no role `{word}`"), word, &known));
        }
        if self.at_kind(Kind::Ident) {
            let span = self.span();
            return Err(self.fail(Code::RoleTwice, span, format!("dim `{name}` states its role twice")));
        }
        Ok(role)
    }

    /// `unit @layer.0 = [%w1, %w2]`
    fn unit(&mut self) -> Parsed<()> {
        self.expect("unit")?;
        let name = self.take(Kind::At, "the unit's name")?.to_string();
        self.expect("=")?;
        self.expect("[")?;
        let members = self.list("]", |p| p.take(Kind::Value, "a parameter").map(str::to_string))?;
        self.model.units.push(Unit { name, members });
        self.no_more()
    }
}
