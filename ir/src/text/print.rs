//! Printing of types, axes, attributes and statements, alone (for messages) or as parts of a file.

use super::cursor::Parser;
use crate::graph::{Model, Stmt, ValueData};
use crate::ids::Value;
use crate::mesh::{Axes, Mesh};
use crate::ops::{Attr, Op};
use crate::types::{Dim, Dims, PartialKind, Space, Type};
use cranelift_entity::PrimaryMap;

/// The values that a statement names.
pub(super) type Values = PrimaryMap<Value, ValueData>;

/// Prints parts of a model with its names.
#[derive(Clone, Copy)]
pub struct Printer<'a> {
    pub(super) mesh: &'a Mesh,
    pub(super) dims: &'a Dims,
    /// Sharded dims show their local bound, as in a program: `b<=4{dp}`.
    pub(super) local: bool,
}

impl<'a> Printer<'a> {
    /// A printer with the names of a model.
    pub fn new(model: &'a Model) -> Printer<'a> {
        Printer { mesh: &model.mesh, dims: &model.dims, local: false }
    }

    /// A printer for programs: sharded dims show their local bound.
    pub fn local(self) -> Printer<'a> {
        Printer { local: true, ..self }
    }

    /// `{dp,tp}` without the braces; runs that equal a group print as the group, the longest first.
    pub(super) fn axis_names(&self, axes: &Axes) -> String {
        let mut names = Vec::new();
        let mut rest = axes.as_slice();
        while let [axis, after @ ..] = rest {
            let groups = self.mesh.groups.iter().filter(|group| rest.starts_with(group.axes.as_slice()));
            // Of equally long groups the first declared.
            match groups.rev().max_by_key(|group| group.axes.len()) {
                Some(group) => {
                    names.push(group.name.as_str());
                    rest = &rest[group.axes.len()..];
                }
                None => {
                    names.push(self.mesh.axes[*axis].name.as_str());
                    rest = after;
                }
            }
        }
        names.join(",")
    }

    /// `{dp,tp}`
    pub fn axes(&self, axes: &Axes) -> String {
        format!("{{{}}}", self.axis_names(axes))
    }

    /// `bf16[b{dp}, s, h]+{tp}`. `values` names the values of dynamic sizes.
    pub fn ty(&self, ty: &Type, values: &Values) -> String {
        let dims: Vec<String> = ty.dims.iter().map(|dim| self.dim(dim, values)).collect();
        let mut text = format!("{}[{}]", ty.dtype.name(), dims.join(", "));
        if !ty.storage.is_empty() {
            text += &format!("/{}", self.axes(&ty.storage));
        }
        if let Some(partial) = &ty.partial {
            let sign = if partial.kind == PartialKind::Sum { "+" } else { "max" };
            text += &format!("{sign}{}", self.axes(&partial.axes));
        }
        if ty.space == Space::Host {
            text += "@host";
        }
        text
    }

    fn dim(&self, dim: &Dim, values: &Values) -> String {
        let mut text = match dim.name.and_then(|name| self.dims.get(name)) {
            Some(data) if data.size == dim.size => data.name.clone(),
            _ => dim.size.to_string(),
        };
        match dim.count {
            Some(count) => text += &format!("<={}(%{})", dim.size, values[count].name),
            None if self.local && !dim.axes.is_empty() => {
                text += &format!("<={}", self.mesh.bound(dim.size, &dim.axes));
            }
            None => {}
        }
        text + &match (dim.axes.is_empty(), dim.open) {
            (true, false) => String::new(),
            (true, true) => "{?}".to_string(),
            (false, true) => format!("{{{},?}}", self.axis_names(&dim.axes)),
            (false, false) => self.axes(&dim.axes),
        }
    }

    pub(super) fn attr(&self, attr: &Attr) -> String {
        match attr {
            Attr::Axes(axes) => self.axes(axes),
            Attr::List(list) => format!("[{}]", list.iter().map(|axes| self.axes(axes)).collect::<Vec<_>>().join(", ")),
            Attr::Str(text) => format!("\"{text}\""),
            Attr::Float(value) => print_float(*value),
            Attr::Expr(expr) => expr.print(self.mesh),
            Attr::Word(word) => word.clone(),
        }
    }

    /// `einsum(%x, %w, eq="..")`
    pub(super) fn application(&self, op: &Op, operands: &[Value], values: &Values) -> String {
        let operands = operands.iter().map(|&value| format!("%{}", values[value].name));
        let attrs = op.attrs().into_iter().map(|(name, attr)| format!("{name}={}", self.attr(&attr)));
        format!("{}({})", op.name(), operands.chain(attrs).collect::<Vec<_>>().join(", "))
    }

    /// `%x: type, %y: type`
    pub(super) fn stated(&self, stated: &[Value], values: &Values) -> String {
        let stated = stated.iter().map(|&value| &values[value]);
        stated.map(|data| format!("%{}: {}", data.name, self.ty(&data.ty, values))).collect::<Vec<_>>().join(", ")
    }

    /// A statement on one line.
    pub fn stmt(&self, stmt: &Stmt, values: &Values) -> String {
        let sign = if stmt.accumulate { "+=" } else { "=" };
        let right = self.application(&stmt.op, &stmt.operands, values);
        format!("{} {sign} {right}", self.stated(&stmt.results, values))
    }
}

impl Parser<'_> {
    /// A type as text, for messages.
    pub(super) fn print_type(&self, ty: &Type) -> String {
        Printer::new(&self.model).ty(ty, &self.scope.values)
    }
}

/// The shortest text that reads back as this number and as a float.
pub(super) fn print_float(value: f64) -> String {
    format!("{value:?}")
}

/// `%a, %b`
pub(super) fn print_values(list: &[Value], values: &Values) -> String {
    list.iter().map(|&value| format!("%{}", values[value].name)).collect::<Vec<_>>().join(", ")
}

/// Comment lines.
pub(super) fn print_comments(comments: &[String], indent: &str) -> String {
    comments.iter().map(|line| format!("{indent}// {line}").trim_end().to_string() + "\n").collect()
}

/// The widest line before a list is broken.
const WIDTH: usize = 120;

/// `head` + items between commas + `tail`; if that is too wide, the items go on separate, filled lines.
pub(super) fn wrap(head: &str, items: &[String], tail: &str, indent: &str) -> String {
    let line = format!("{head}{}{tail}", join(items));
    if line.chars().count() <= WIDTH || items.is_empty() {
        return line;
    }
    let deeper = format!("{indent}    ");
    let mut lines = vec![head.to_string()];
    let mut current = String::new();
    for (place, item) in items.iter().enumerate() {
        let separated = if place + 1 == items.len() || item.ends_with(';') { item.clone() } else { format!("{item},") };
        if !current.is_empty() && current.chars().count() + 1 + separated.chars().count() > WIDTH {
            lines.push(std::mem::take(&mut current));
        }
        current = if current.is_empty() { format!("{deeper}{separated}") } else { format!("{current} {separated}") };
    }
    lines.push(current);
    lines.push(format!("{indent}{tail}"));
    lines.join("\n")
}

fn join(items: &[String]) -> String {
    let mut text = String::new();
    for (place, item) in items.iter().enumerate() {
        text += item;
        if place + 1 < items.len() {
            text += if item.ends_with(';') { " " } else { ", " };
        }
    }
    text
}

/// Two lists of arguments around a `;`, which ends the item before it.
pub(super) fn join_args(mut early: Vec<String>, late: Vec<String>) -> Vec<String> {
    if late.is_empty() {
        return early;
    }
    match early.last_mut() {
        Some(last) => last.push(';'),
        None => early.push(";".to_string()),
    }
    early.into_iter().chain(late).collect()
}
