//! Printing of blocks and of the step graph.

use super::parse_block::{ARG_KINDS, RESULT_KINDS};
use super::print::{Printer, Values, join_args, print_comments, print_values, wrap};
use crate::graph::{Block, Section, SectionKind, Step, Stmt};

/// The widest left side that others are aligned to.
const ALIGN: usize = 72;

impl Printer<'_> {
    /// A block.
    pub fn block(&self, block: &Block) -> String {
        let results: Vec<String> = block
            .results
            .iter()
            .zip(&block[SectionKind::F].ret)
            .map(|(kind, &value)| {
                let word = RESULT_KINDS.iter().find(|(known, _)| known == kind).map_or("", |(_, word)| word);
                format!("{word} {}", self.ty(block.ty(value), &block.values)).trim_start().to_string()
            })
            .collect();
        let arrow = if results.is_empty() { String::new() } else { format!(" -> {}", results.join(", ")) };
        let head = wrap(&format!("block @{}(", block.name), &self.args(block), &format!("){arrow} {{"), "");
        let width = self.align(block);
        let mut text = print_comments(&block.comments, "") + &head + "\n";
        let only_forward = SectionKind::ALL.iter().all(|&kind| kind == SectionKind::F || is_empty(&block[kind]));
        for kind in SectionKind::ALL {
            let section = &block[kind];
            if kind != SectionKind::F && is_empty(section) {
                continue;
            }
            match kind {
                SectionKind::G => text += "G:\n",
                SectionKind::F if only_forward => {}
                SectionKind::F => text += "F:\n",
                SectionKind::I => text += &format!("I({}):\n", self.stated(&section.args, &block.values)),
                SectionKind::W => text += "W:\n",
                SectionKind::U => text += "U:\n",
            }
            text += &self.section(section, &block.values, width);
            if matches!(kind, SectionKind::F | SectionKind::I) || !section.ret.is_empty() {
                text += &print_return(section, &block.values);
            }
        }
        text + "}\n"
    }

    /// The step graph.
    pub(super) fn step(&self, step: &Step) -> String {
        let graph = &step.graph;
        let section = &graph[SectionKind::F];
        let width = self.align(graph);
        let body = self.section(section, &graph.values, width) + &print_return(section, &graph.values);
        wrap("step(", &self.args(graph), ") {", "") + "\n" + &body + "}\n"
    }

    fn args(&self, block: &Block) -> Vec<String> {
        let (mut early, mut late) = (Vec::new(), Vec::new());
        for arg in &block.args {
            let data = &block.values[arg.value];
            let word = ARG_KINDS.iter().find(|(kind, _)| *kind == arg.kind);
            let word = word.map_or(String::new(), |(_, word)| format!("{word} "));
            let text = format!("%{}: {word}{}", data.name, self.ty(&data.ty, &block.values));
            if arg.kind.is_passed() { early.push(text) } else { late.push(text) }
        }
        join_args(early, late)
    }

    /// The width of the left sides of a block, ignoring very wide ones.
    fn align(&self, block: &Block) -> usize {
        let stmts = block.sections.iter().flat_map(|section| &section.stmts);
        let widths = stmts.map(|stmt| self.stated(&stmt.results, &block.values).chars().count());
        widths.filter(|&width| width <= ALIGN).max().unwrap_or(0)
    }

    fn section(&self, section: &Section, values: &Values, width: usize) -> String {
        section.stmts.iter().map(|stmt| self.aligned(stmt, values, width, "  ")).collect()
    }

    /// A statement with its comments, its left side padded.
    pub(super) fn aligned(&self, stmt: &Stmt, values: &Values, width: usize, indent: &str) -> String {
        let left = self.stated(&stmt.results, values);
        let sign = if stmt.accumulate { "+=" } else { "=" };
        let right = self.application(&stmt.op, &stmt.operands, values);
        format!("{}{indent}{left:width$} {sign} {right}\n", print_comments(&stmt.comments, indent))
    }
}

fn is_empty(section: &Section) -> bool {
    section.args.is_empty() && section.stmts.is_empty() && section.ret.is_empty()
}

fn print_return(section: &Section, values: &Values) -> String {
    format!("  return {}", print_values(&section.ret, values)).trim_end().to_string() + "\n"
}
