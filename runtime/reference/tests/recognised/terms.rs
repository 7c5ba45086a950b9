//! Terms in primitives, of random sizes and with their dims in a random order.

use std::collections::BTreeMap;

/// The body of a block.
pub(crate) struct Term {
    /// Names and types of its arguments.
    pub(crate) args: Vec<(&'static str, String)>,
    /// Its statements, the last of which makes `%y`.
    pub(crate) body: String,
    /// The type of `%y`.
    pub(crate) ty: String,
}

/// Random sizes and orders.
pub(crate) struct Draft {
    state: u64,
    sizes: BTreeMap<&'static str, u64>,
}

impl Draft {
    pub(crate) fn new(seed: u64) -> Draft {
        Draft { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, sizes: BTreeMap::new() }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % limit
    }

    /// Draws a size of 2 to 5 for each label.
    fn draw(&mut self, labels: &[&'static str]) {
        for label in labels {
            let size = 2 + self.below(4);
            self.sizes.insert(label, size);
        }
    }

    /// Labels in a random order.
    fn shuffled(&mut self, labels: &[&'static str]) -> Vec<&'static str> {
        let mut labels = labels.to_vec();
        for place in (1..labels.len()).rev() {
            let other = self.below(place as u64 + 1) as usize;
            labels.swap(place, other);
        }
        labels
    }

    /// One to three labels of rows, in a random order.
    fn rows(&mut self) -> Vec<&'static str> {
        self.draw(&["a", "b", "c"]);
        let count = 1 + self.below(3) as usize;
        let mut rows = self.shuffled(&["a", "b", "c"]);
        rows.truncate(count);
        rows
    }

    /// The type of a tensor.
    fn ty(&self, dtype: &str, labels: &[&str]) -> String {
        let sizes: Vec<String> = labels.iter().map(|label| self.sizes[label].to_string()).collect();
        format!("{dtype}[{}]", sizes.join(", "))
    }

    fn f32(&self, labels: &[&str]) -> String {
        self.ty("f32", labels)
    }
}

fn eq(labels: &[&str]) -> String {
    if labels.is_empty() { "()".to_string() } else { labels.join(" ") }
}

/// The op that is recognised in a term, and the term.
type Case = (&'static str, fn(&mut Draft) -> Term);

/// A term for each recogniser, or several.
pub(crate) const TERMS: [Case; 15] = [
    ("sigmoid", |d| elementwise(d, "%n = neg(%x)\n%e = exp(%n)\n%s = shift(%e, by=1.0)\n%y = recip(%s)")),
    ("silu", |d| elementwise(d, "%n = neg(%x)\n%e = exp(%n)\n%s = shift(%e, by=1.0)\n%y = div(%x, %s)")),
    ("gelu", |d| {
        let cube = "%q = square(%x)\n%c = mul(%q, %x)\n%k = scale(%c, by=0.044715)\n%i = add(%x, %k)";
        let gate = "%u = scale(%i, by=0.7978845608028654)\n%t = tanh(%u)\n%o = shift(%t, by=1.0)";
        elementwise(d, &format!("{cube}\n{gate}\n%h = scale(%x, by=0.5)\n%y = mul(%h, %o)"))
    }),
    ("gelu_erf", |d| {
        elementwise(
            d,
            "%u = scale(%x, by=0.7071067811865476)\n%t = erf(%u)\n%m = mul(%x, %t)\n%s = add(%x, %m)\n%y = scale(%s, by=0.5)",
        )
    }),
    ("relu_squared", |d| elementwise(d, "%m = at_least(%x, min=0.0)\n%y = mul(%m, %m)")),
    ("softmax", softmax),
    ("rms_norm", |d| norm(d, true, false)),
    ("rms_norm", |d| norm(d, false, false)),
    ("layer_norm", |d| norm(d, true, true)),
    ("layer_norm", |d| norm(d, false, true)),
    ("cross_entropy", cross_entropy),
    ("embedding", embedding),
    ("rope", rope),
    ("attention", |d| attention(d, false)),
    ("attention", |d| attention(d, true)),
];

/// Statements of one type, which is left out in the text.
fn elementwise(d: &mut Draft, text: &str) -> Term {
    let rows = d.rows();
    let ty = d.f32(&rows);
    let body: Vec<String> = text.lines().map(|line| line.replacen(" =", &format!(": {ty} ="), 1)).collect();
    Term { args: vec![("x", ty.clone())], body: body.join("\n"), ty }
}

/// Rows whose last dim is another one before a permutation.
fn moved(d: &mut Draft, rows: &[&'static str]) -> (String, String) {
    let all = [rows, &["h"]].concat();
    let from = d.shuffled(&all);
    let permute = format!("%x: {} = permute(%x0, eq=\"{} -> {}\")\n", d.f32(&all), eq(&from), eq(&all));
    (d.f32(&from), permute)
}

fn softmax(d: &mut Draft) -> Term {
    d.draw(&["h"]);
    let rows = d.rows();
    let (from, permute) = moved(d, &rows);
    let all = [rows.as_slice(), &["h"]].concat();
    let (whole, row) = (d.f32(&all), d.f32(&rows));
    let (whole_eq, row_eq) = (eq(&all), eq(&rows));
    let body = format!(
        "{permute}%m: {row} = reduce_max(%x, eq=\"{whole_eq} -> {row_eq}\")
         %c: {whole} = sub(%x, %m, eq=\"{whole_eq}, {row_eq} -> {whole_eq}\")
         %e: {whole} = exp(%c)
         %t: {row} = reduce_sum(%e, eq=\"{whole_eq} -> {row_eq}\")
         %y: {whole} = div(%e, %t, eq=\"{whole_eq}, {row_eq} -> {whole_eq}\")"
    );
    Term { args: vec![("x0", from)], body, ty: whole }
}

/// A norm of rows, with gains and shifts or without, about the mean or not.
fn norm(d: &mut Draft, has_gains: bool, is_centred: bool) -> Term {
    d.draw(&["h"]);
    let rows = d.rows();
    let (from, permute) = moved(d, &rows);
    let all = [rows.as_slice(), &["h"]].concat();
    let (whole, row, column) = (d.f32(&all), d.f32(&rows), d.f32(&["h"]));
    let (whole_eq, row_eq) = (eq(&all), eq(&rows));
    let share = 1.0 / d.sizes["h"] as f64;
    let by_row = format!("eq=\"{whole_eq}, {row_eq} -> {whole_eq}\"");
    let by_column = format!("eq=\"{whole_eq}, h -> {whole_eq}\"");
    let mean = |to: &str, x: &str| {
        format!(
            "%{to}s: {row} = reduce_sum(%{x}, eq=\"{whole_eq} -> {row_eq}\")\n%{to}: {row} = scale(%{to}s, by={share:?})\n"
        )
    };
    let mut body = permute;
    let mut x = "x";
    if is_centred {
        body += &format!("{}%c: {whole} = sub(%x, %mean, {by_row})\n", mean("mean", "x"));
        x = "c";
    }
    body += &format!("%q: {whole} = square(%{x})\n{}", mean("var", "q"));
    body += &format!("%e: {row} = shift(%var, by=0.001)\n%r: {row} = sqrt(%e)\n");
    let last = if has_gains { "n" } else { "y" };
    body += &format!("%{last}: {whole} = div(%{x}, %r, {by_row})\n");
    if has_gains {
        let scaled = if is_centred { "g" } else { "y" };
        body += &format!("%{scaled}: {whole} = mul(%n, %gamma, {by_column})\n");
    }
    if has_gains && is_centred {
        body += &format!("%y: {whole} = add(%g, %beta, {by_column})");
    }
    Term { args: vec![("x0", from), ("gamma", column.clone()), ("beta", column)], body, ty: whole }
}

fn cross_entropy(d: &mut Draft) -> Term {
    d.draw(&["h"]);
    let rows = d.rows();
    let all = [rows.as_slice(), &["h"]].concat();
    let (whole, row, labels) = (d.f32(&all), d.f32(&rows), d.ty("i32", &rows));
    let (whole_eq, row_eq) = (eq(&all), eq(&rows));
    let body = format!(
        "%m: {row} = reduce_max(%x, eq=\"{whole_eq} -> {row_eq}\")
         %c: {whole} = sub(%x, %m, eq=\"{whole_eq}, {row_eq} -> {whole_eq}\")
         %e: {whole} = exp(%c)
         %t: {row} = reduce_sum(%e, eq=\"{whole_eq} -> {row_eq}\")
         %l: {row} = log(%t)
         %p: {whole} = sub(%c, %l, eq=\"{whole_eq}, {row_eq} -> {whole_eq}\")
         %k: {row} = pick(%p, %lab)
         %s: f32[] = reduce_sum(%k, eq=\"{row_eq} -> ()\")
         %y: f32[] = scale(%s, by=-0.125)"
    );
    Term { args: vec![("x", whole), ("lab", labels)], body, ty: "f32[]".to_string() }
}

fn embedding(d: &mut Draft) -> Term {
    d.draw(&["h", "v"]);
    let rows = d.rows();
    let (hot, out) = ([rows.as_slice(), &["v"]].concat(), [rows.as_slice(), &["h"]].concat());
    let (table, to) = (d.shuffled(&["v", "h"]), d.shuffled(&out));
    let (mask, dim) = (d.ty("i32", &hot), rows.len());
    let body = format!(
        "%w: {mask} = broadcast(%ids, eq=\"{} -> {}\")
         %i: {mask} = iota(dim={dim})
         %is: {mask} = equal(%w, %i)
         %hot: {} = cast(%is, to=f32)
         %y: {} = einsum(%hot, %table, eq=\"{}, {} -> {}\")",
        eq(&rows),
        eq(&hot),
        d.f32(&hot),
        d.f32(&to),
        eq(&hot),
        eq(&table),
        eq(&to),
    );
    Term { args: vec![("ids", d.ty("i32", &rows)), ("table", d.f32(&table))], body, ty: d.f32(&to) }
}

/// A rotation by halves; heads are before the sequence or behind it, and may have groups.
fn rope(d: &mut Draft) -> Term {
    d.draw(&["b", "s", "g", "r", "e"]);
    d.sizes.insert("d", 2 * d.sizes["e"]);
    let heads: &[&'static str] = if d.below(2) == 0 { &["g"] } else { &["g", "r"] };
    let dims = d.shuffled(&[&["b", "s"], heads].concat());
    let (x, half) = ([dims.as_slice(), &["d"]].concat(), [dims.as_slice(), &["e"]].concat());
    let (ty, part, angle) = (d.f32(&x), d.f32(&half), d.f32(&["b", "s", "e"]));
    let (e, dim) = (d.sizes["e"], dims.len());
    let by = format!("eq=\"{}, b s e -> {}\"", eq(&half), eq(&half));
    let body = format!(
        "%i: i32[{e}] = iota(dim=0)
         %if: f32[{e}] = cast(%i, to=f32)
         %ip: f32[{e}] = scale(%if, by={:?})
         %freq: f32[{e}] = exp(%ip)
         %pf: {} = cast(%pos, to=f32)
         %ang: {angle} = einsum(%pf, %freq, eq=\"b s, e -> b s e\")
         %c: {angle} = cos(%ang)
         %s: {angle} = sin(%ang)
         %x1: {part} = slice(%x, dim={dim}, start=0, length={e})
         %x2: {part} = slice(%x, dim={dim}, start={e}, length={e})
         %a: {part} = mul(%x1, %c, {by})
         %b: {part} = mul(%x2, %s, {by})
         %p: {part} = sub(%a, %b)
         %cc: {part} = mul(%x2, %c, {by})
         %dd: {part} = mul(%x1, %s, {by})
         %q: {part} = add(%cc, %dd)
         %y: {ty} = concat(%p, %q, dim={dim})",
        -100f64.ln() / e as f64,
        d.f32(&["b", "s"]),
    );
    Term { args: vec![("x", ty.clone()), ("pos", d.ty("i32", &["b", "s"]))], body, ty }
}

/// Causal attention of grouped heads within segments; operands, scores and result have any order of dims. With dropout, scores
/// have the order of the op, which counts random numbers.
fn attention(d: &mut Draft, is_dropped: bool) -> Term {
    d.draw(&["b", "s", "g", "r", "d", "c"]);
    d.sizes.insert("t", d.sizes["s"]);
    let (q, k) = (d.shuffled(&["b", "s", "g", "r", "d"]), d.shuffled(&["b", "t", "g", "d"]));
    let (v, out) = (d.shuffled(&["b", "t", "g", "c"]), d.shuffled(&["b", "s", "g", "r", "c"]));
    let rows = if is_dropped { vec!["b", "s", "g", "r"] } else { d.shuffled(&["b", "g", "r", "s"]) };
    let all = [rows.as_slice(), &["t"]].concat();
    let (scores, row, mask) = (d.f32(&all), d.f32(&rows), d.ty("i32", &all));
    let (all_eq, row_eq) = (eq(&all), eq(&rows));
    let weights = if is_dropped { "dw" } else { "w" };
    let drop = if is_dropped { format!("%dw: {scores} = dropout(%w, p=0.25, path=\"w\")") } else { String::new() };
    // An index of queries or keys, repeated to the dims of the scores.
    let index = |to: &str, x: &str, label: &'static str| {
        let order: Vec<&str> = all.iter().copied().filter(|own| ["b", label].contains(own)).collect();
        let ty = d.ty("i32", &order);
        let permute = format!("%{to}0: {ty} = permute(%{x}, eq=\"b {label} -> {}\")", eq(&order));
        format!("{permute}\n%{to}: {mask} = broadcast(%{to}0, eq=\"{} -> {all_eq}\")", eq(&order))
    };
    let indices = [("qp", "pos", "s"), ("kp", "pos", "t"), ("qs", "seg", "s"), ("ks", "seg", "t")];
    let indices = indices.map(|(to, x, label)| index(to, x, label)).join("\n");
    let body = format!(
        "{indices}
         %z: {scores} = einsum(%q, %k, eq=\"{}, {} -> {all_eq}\")
         %sc: {scores} = scale(%z, by=0.375)
         %see: {mask} = less_equal(%kp, %qp)
         %same: {mask} = equal(%ks, %qs)
         %i: {scores} = iota(dim=0)
         %zero: {scores} = scale(%i, by=0.0)
         %far: {scores} = shift(%zero, by=-1e9)
         %m1: {scores} = select(%see, %sc, %far)
         %ms: {scores} = select(%same, %m1, %far)
         %max: {row} = reduce_max(%ms, eq=\"{all_eq} -> {row_eq}\")
         %low: {scores} = sub(%ms, %max, eq=\"{all_eq}, {row_eq} -> {all_eq}\")
         %e: {scores} = exp(%low)
         %sum: {row} = reduce_sum(%e, eq=\"{all_eq} -> {row_eq}\")
         %w: {scores} = div(%e, %sum, eq=\"{all_eq}, {row_eq} -> {all_eq}\")
         {drop}
         %y: {} = einsum(%{weights}, %v, eq=\"{all_eq}, {} -> {}\")",
        eq(&q),
        eq(&k),
        d.f32(&out),
        eq(&v),
        eq(&out),
    );
    let indices = d.ty("i32", &["b", "s"]);
    let args = vec![("q", d.f32(&q)), ("k", d.f32(&k)), ("v", d.f32(&v)), ("pos", indices.clone()), ("seg", indices)];
    Term { args, body, ty: d.f32(&out) }
}
