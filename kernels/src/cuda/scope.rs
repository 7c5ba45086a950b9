//! The lines of C that compute elements of a program's values.
//!
//! A value at an index becomes a variable, once per scope. Operands are inlined: a value read at two indices is recomputed, never stored.

use super::spell::{Spelling, binary, literal, relation, spelling, unary};
use super::tables::Tables;
use crate::group::{Index, Node, Program, Random, Read, Rotate, Select, Take};
use crate::scalar::{Access, Element, Strides};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The index of an element in the loop over all elements.
pub(super) const ELEMENT: &str = "e";
/// The index of a row.
pub(super) const ROW: &str = "row";
/// The place of an element in its row.
pub(super) const COLUMN: &str = "column";
/// Prefix of the arrays in registers that hold a value's elements.
pub(super) const SAVED: &str = "saved";
/// The first column of a thread's vector.
pub(super) const VECTOR: &str = "begin";
/// True if every vector that is read or written is aligned to 16 bytes.
pub(super) const IS_ALIGNED: &str = "is_aligned";
/// The indices of four neighbouring elements.
pub(super) const FOUR: [&str; 4] = ["e0", "e1", "e2", "e3"];
/// The names of the parts of a vector.
pub(super) const PARTS: [&str; 4] = ["x", "y", "z", "w"];

/// How often a line runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Nest {
    Once,
    Row,
    Element,
}

/// An index in C.
#[derive(Clone, Copy)]
struct Known {
    level: Nest,
    /// It is an element of the present row.
    in_row: bool,
}

pub(super) struct Scope<'a> {
    program: &'a Program,
    /// The number of rows and of their elements, if the kernel goes by rows.
    rows: Option<[usize; 2]>,
    lines: [Vec<String>; 3],
    names: HashMap<(usize, String), String>,
    /// The variables of rounded numbers, by those of the exact ones.
    rounded: HashMap<String, String>,
    indices: HashMap<String, Known>,
    moves: HashMap<(Strides, String), String>,
    tables: Tables,
    variables: usize,
    /// Arrays in registers of values from earlier loops, with the last loop that reads each.
    pub(super) saved: BTreeMap<usize, Option<usize>>,
    /// The number of the loop.
    pub(super) phase: usize,
    /// Values of elements that the present loop computes, in its order, with their variables.
    pub(super) computed: Vec<(usize, String)>,
    /// Inputs that are read as vectors.
    pub(super) vectors: BTreeSet<usize>,
    /// Inputs whose elements each row reads, all of them and as vectors.
    columns: BTreeSet<usize>,
    /// Elements of a vector of a row; 1 if rows are read one by one.
    wide: usize,
    /// True if four neighbouring elements have four separate addresses, so that no vector covers them.
    pub(super) is_scattered: bool,
    /// Inputs that are read at other indices than the results that depend on them.
    pub(super) apart: BTreeSet<usize>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(program: &'a Program, rows: Option<[usize; 2]>) -> Scope<'a> {
        let column = Known { level: Nest::Element, in_row: false };
        let mut indices: HashMap<String, Known> = FOUR.iter().map(|four| (four.to_string(), column)).collect();
        indices.insert(ELEMENT.into(), Known { in_row: true, ..column });
        indices.insert(COLUMN.into(), column);
        indices.insert(ROW.into(), Known { level: Nest::Row, in_row: false });
        Scope {
            program,
            rows,
            lines: Default::default(),
            names: HashMap::new(),
            rounded: HashMap::new(),
            indices,
            moves: HashMap::new(),
            tables: Tables::default(),
            variables: 0,
            saved: BTreeMap::new(),
            phase: 0,
            computed: Vec::new(),
            vectors: BTreeSet::new(),
            columns: BTreeSet::new(),
            wide: 1,
            is_scattered: false,
            apart: BTreeSet::new(),
        }
    }

    /// A scope whose rows are read by vectors of a number of elements.
    pub(super) fn by_vectors(self, wide: usize) -> Scope<'a> {
        Scope { wide, ..self }
    }

    /// The inputs that the present loop reads as vectors, and the lines that read them.
    pub(super) fn take_vectors(&mut self) -> (Vec<usize>, Vec<String>) {
        let (width, wide) = (self.rows.map_or(0, |[_, width]| width), self.wide);
        let [elements, columns] = [&mut self.vectors, &mut self.columns].map(std::mem::take);
        let inputs: Vec<usize> = self.program.inputs().collect();
        let mut lines = Vec::new();
        for (numbers, array, place) in
            [(&elements, "a", format!("{ROW} * {width}ull + {VECTOR}")), (&columns, "c", VECTOR.to_string())]
        {
            for number in numbers {
                let Spelling { number: ty, suffix, .. } = spelling(self.program.values[inputs[*number]].element);
                let (to, from) = (format!("{array}{number}"), format!("in{number} + {place}"));
                lines.push(format!("{ty} {to}[{wide}]; load_{wide}_{suffix}({from}, {to}, {IS_ALIGNED});"));
            }
        }
        (elements.union(&columns).copied().collect(), lines)
    }

    /// Takes the lines of a level.
    pub(super) fn take(&mut self, level: Nest) -> Vec<String> {
        std::mem::take(&mut self.lines[level as usize])
    }

    /// The functions and constants that the lines name.
    pub(super) fn tables(self) -> String {
        self.tables.text()
    }

    /// Forgets all variables of a loop.
    pub(super) fn leave_loop(&mut self) {
        self.names.retain(|(_, index), _| is_outside(index, &self.indices));
        self.moves.retain(|(_, index), _| is_outside(index, &self.indices));
        self.rounded.retain(|exact, _| !exact.starts_with(SAVED));
    }

    /// Records the variable of a reduced value.
    pub(super) fn reduced(&mut self, value: usize) {
        self.names.insert((value, ROW.to_string()), format!("r{value}"));
    }

    /// The variable, or the literal, of a value's element as other values read it: rounded to its type.
    ///
    /// # Errors
    /// The value depends on the reduction of a row that is not the present one.
    pub(super) fn at(&mut self, value: usize, index: &str) -> Result<String, String> {
        let exact = self.exact(value, index)?;
        let of = &self.program.values[value];
        if of.element.narrow().is_none() || of.node == Node::Input {
            return Ok(exact);
        }
        if let Some(rounded) = self.rounded.get(&exact) {
            return Ok(rounded.clone());
        }
        let Spelling { number, suffix, .. } = spelling(of.element);
        let rounded = self.variable("v");
        self.line(index, format!("{number} {rounded} = round_{suffix}({exact});"));
        self.rounded.insert(exact, rounded.clone());
        Ok(rounded)
    }

    /// The variable, or the literal, of a value's element before it is rounded.
    ///
    /// # Errors
    /// The value depends on the reduction of a row that is not the present one.
    pub(super) fn exact(&mut self, value: usize, index: &str) -> Result<String, String> {
        if let Some(name) = self.names.get(&(value, index.to_string())) {
            return Ok(name.clone());
        }
        if index == ELEMENT
            && let Some(last) = self.saved.get_mut(&value)
        {
            *last = Some(self.phase);
            return Ok(format!("{SAVED}{value}[k]"));
        }
        let program = self.program;
        let of = &program.values[value];
        let text = match &of.node {
            Node::Input => self.load(value, index),
            Node::Number(x) if of.element == Element::I32 => return Ok(format!("{}", *x as i32)),
            Node::Number(x) => return Ok(literal(*x)),
            Node::Convert(x) => {
                let number = spelling(of.element).number;
                let x = self.operand(x, index)?;
                format!("({number}){x}")
            }
            Node::Unary(op, x) => unary(*op, &self.operand(x, index)?),
            Node::Binary(op, a, b) => {
                let [a, b] = [self.operand(a, index)?, self.operand(b, index)?];
                format!("{}({a}, {b})", binary(*op))
            }
            Node::Compare(kind, a, b) => {
                let [a, b] = [self.operand(a, index)?, self.operand(b, index)?];
                format!("{a} {} {b}", relation(*kind))
            }
            Node::Select(select) => self.select(select, index)?,
            Node::Index(along) => self.index(along, of.element, index),
            Node::Take(take) => self.taken(take, index)?,
            Node::Rotate(rotate) => self.rotated(rotate, index)?,
            Node::Random(random) => self.drawn(random, index),
            Node::Reduce(..) => return self.of_row(value, index),
        };
        Ok(self.define(value, index, &text))
    }

    fn operand(&mut self, operand: &Read, index: &str) -> Result<String, String> {
        let index = self.moved(&operand.access, index);
        self.at(operand.value, &index)
    }

    /// Appends a line at the level of an index.
    fn line(&mut self, index: &str, line: String) {
        let level = self.level(index);
        self.lines[level as usize].push(line);
    }

    fn level(&self, index: &str) -> Nest {
        self.indices.get(index).map_or(Nest::Element, |known| known.level)
    }

    fn variable(&mut self, prefix: &str) -> String {
        self.variables += 1;
        format!("{prefix}{}", self.variables)
    }

    /// A variable of a value at an index.
    fn define(&mut self, value: usize, index: &str, text: &str) -> String {
        let name = self.variable("v");
        let number = spelling(self.program.values[value].element).number;
        self.line(index, format!("{number} {name} = {text};"));
        self.names.insert((value, index.to_string()), name.clone());
        if index == ELEMENT {
            self.computed.push((value, name.clone()));
        }
        name
    }

    fn load(&mut self, value: usize, index: &str) -> String {
        let suffix = spelling(self.program.values[value].element).suffix;
        let number = self.program.inputs().position(|input| input == value).unwrap_or_default();
        if let Some(part) = FOUR.iter().position(|four| *four == index) {
            self.vectors.insert(number);
            return format!("load_{suffix}(a{number}.{})", PARTS[part]);
        }
        if self.wide > 1 && index == ELEMENT {
            self.vectors.insert(number);
            return format!("a{number}[p]");
        }
        let is_only = index == "0" && self.program.values[value].len == 1;
        if !is_only && ![ELEMENT, ROW].contains(&index) {
            self.apart.insert(number);
        }
        if self.wide > 1 && index == COLUMN {
            self.columns.insert(number);
            return format!("c{number}[p]");
        }
        format!("load_{suffix}(in{number}[{index}])")
    }

    fn of_row(&mut self, value: usize, index: &str) -> Result<String, String> {
        let known = self.indices.get(index);
        let is_row = self.rows.is_some_and(|[rows, width]| {
            (rows == 1 && index == "0") || (width == 1 && known.is_some_and(|known| known.in_row))
        });
        let name = self.names.get(&(value, ROW.to_string())).filter(|_| is_row);
        name.cloned().ok_or_else(|| "a kernel reduces the rows that it reads, one by one".to_string())
    }

    fn select(&mut self, select: &Select, index: &str) -> Result<String, String> {
        let Select { mask, not, of, other } = select;
        let mask = self.operand(mask, index)?;
        let of = self.operand(of, index)?;
        let other = other.as_ref().map(|other| self.operand(other, index)).transpose()?;
        let relation = if *not { "==" } else { "!=" };
        Ok(format!("{mask} {relation} 0 ? {of} : {}", other.as_deref().unwrap_or("0.0f")))
    }

    fn index(&mut self, along: &Index, element: Element, index: &str) -> String {
        let Index { origin, size, inner } = *along;
        let is_column = self.rows.is_some_and(|[_, width]| width == size) && inner == 1 && index == ELEMENT;
        let place =
            if is_column { COLUMN.to_string() } else { format!("{index} / {}u % {}u", inner.max(1), size.max(1)) };
        format!("({})({origin}ll + (long long)({place}))", spelling(element).number)
    }

    fn taken(&mut self, take: &Take, index: &str) -> Result<String, String> {
        let Take { of, base, index: number, origin, size, stride } = take;
        if *size == 0 {
            return Ok("0.0f".to_string());
        }
        let base = base.merged();
        let number = self.operand(number, index)?;
        let start = self.moved(&Access::Strided(base.clone()), index);
        let [offset, is_there, place] = ["n", "is", "p"].map(|prefix| self.variable(prefix));
        self.line(index, format!("long long {offset} = (long long){number} - {origin}ll;"));
        self.line(index, format!("int {is_there} = {offset} >= 0 && {offset} < {size}ll;"));
        let moved = format!("({is_there} ? (unsigned long long){offset} * {stride}ull : 0ull)");
        self.line(index, format!("unsigned long long {place} = {start} + {moved};"));
        let in_row = self.rows.is_some_and(|[rows, width]| {
            let by_rows = base.offset == 0 && (base.dims == [(rows, width)] || rows == 1 && base.dims.is_empty());
            index == ROW && by_rows && self.program.values[*of].len == rows * width && size * stride == width
        });
        self.indices.insert(place.clone(), Known { level: self.level(index), in_row });
        let x = self.at(*of, &place)?;
        let none = if self.program.values[*of].element == Element::I32 { "0" } else { "0.0f" };
        Ok(format!("{is_there} ? {x} : {none}"))
    }

    fn rotated(&mut self, rotate: &Rotate, index: &str) -> Result<String, String> {
        let Rotate { of, position, turns, beyond, gain, head } = rotate;
        let pairs = turns.len();
        let mut table = self.tables.turns(turns);
        if let Some(beyond) = beyond {
            let (length, long) = (self.operand(&beyond.length, index)?, self.tables.turns(&beyond.turns));
            table = format!("(long long){length} > {}ll ? {long} : {table}", beyond.context);
        }
        let position = self.operand(position, index)?;
        let [place, partner] = ["h", "p"].map(|prefix| self.variable(prefix));
        self.line(index, format!("unsigned int {place} = (unsigned int)({index} % {head}u);"));
        let moved = format!("{place} < {pairs}u ? {index} + {pairs}u : {place} < {}u ? {index} - {pairs}u", 2 * pairs);
        self.line(index, format!("unsigned long long {partner} = {moved} : {index};"));
        let in_row = self.indices.get(index).is_some_and(|known| known.in_row)
            && self.rows.is_some_and(|[_, width]| width.is_multiple_of(*head));
        self.indices.insert(partner.clone(), Known { level: self.level(index), in_row });
        let [x, other] = [self.at(*of, index)?, self.at(*of, &partner)?];
        Ok(format!("rotated({x}, {other}, {position}, {table}, {place}, {pairs}u, {})", literal(*gain)))
    }

    fn drawn(&mut self, random: &Random, index: &str) -> String {
        let Random { path, counter, microbatch } = random;
        let key = self.tables.key(path);
        if let Some(line) = key.1 {
            self.lines[Nest::Once as usize].push(line);
        }
        let counter = self.moved(&Access::Strided(counter.clone()), index);
        format!("uniform({}, {counter} + microbatch * {microbatch}ull)", key.0)
    }

    /// The index of an operand's element.
    fn moved(&mut self, access: &Access, index: &str) -> String {
        let strides = match access {
            Access::Same => return index.to_string(),
            Access::One => Strides { dims: Vec::new(), offset: 0 },
            Access::Strided(strides) => strides.merged(),
        };
        let Strides { dims, offset } = &strides;
        if dims.iter().all(|dim| dim.1 == 0) {
            let constant = offset.to_string();
            self.indices.entry(constant.clone()).or_insert(Known { level: Nest::Once, in_row: false });
            return constant;
        }
        if *offset == 0 && matches!(dims[..], [(_, 1)]) {
            return index.to_string();
        }
        let in_row = self.indices.get(index).is_some_and(|known| known.in_row);
        if let (true, Some([rows, width]), 0) = (in_row, self.rows, *offset) {
            if *dims == [(rows, 1), (width, 0)] {
                return ROW.to_string();
            }
            if *dims == [(rows, 0), (width, 1)] && index == ELEMENT {
                return COLUMN.to_string();
            }
        }
        match FOUR.iter().position(|four| *four == index) {
            Some(part) => self.moved_four(&strides, part),
            None => self.place(&strides, index),
        }
    }

    /// Four elements of which the first has an index that is a multiple of four.
    fn moved_four(&mut self, strides: &Strides, part: usize) -> String {
        let run = strides.dims.last().filter(|(size, stride)| size % 4 == 0 && *stride < 2);
        self.is_scattered |= run.is_none();
        let first = self.place(strides, FOUR[0]);
        match run.map_or(0, |(_, stride)| part * stride) {
            0 => first,
            by => {
                let index = format!("({first} + {by})");
                self.indices.insert(index.clone(), Known { level: Nest::Element, in_row: false });
                index
            }
        }
    }

    fn place(&mut self, strides: &Strides, index: &str) -> String {
        let key = (strides.clone(), index.to_string());
        if let Some(place) = self.moves.get(&key) {
            return place.clone();
        }
        let place = self.variable("p");
        let function = self.tables.place(strides);
        self.line(index, format!("unsigned long long {place} = {function}({index});"));
        self.indices.insert(place.clone(), Known { level: self.level(index), in_row: false });
        self.moves.insert(key, place.clone());
        place
    }
}

/// True if lines name a variable.
pub(super) fn are_used(lines: &[String], name: &str) -> bool {
    let mut words = lines.iter().flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    words.any(|word| word == name)
}

/// True if an index stays the same within a loop over elements.
fn is_outside(index: &str, indices: &HashMap<String, Known>) -> bool {
    indices.get(index).is_some_and(|known| known.level < Nest::Element)
}
