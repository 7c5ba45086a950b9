//! Sharding rules: einsum-like strings that assign a *factor* to each dim of an op's tensors. Dims with the same factor have
//! the same axes. Shardy calls this an `OpShardingRule`.
//!
//! `"*m k+, k+ n -> *m n"`: a matmul. `+` (or `+max`): sharding the factor leaves a partial sum (maximum) on every result
//! that lacks it. `!`: the factor needs replication. `*x`: a run of dims. `(i j)`: a compound dim, a product of two factors;
//! `i=2` states a size, `i+=2` marks the factor too. A number: a dim of fixed size that cannot be sharded. An unmarked factor that a result lacks needs
//! replication. An operand is replicated over the axes of a factor that it lacks. A factor of results alone may be sharded
//! freely.

use crate::mesh::{Axes, Mesh};
use crate::types::{Partial, PartialKind, Type};
use smallvec::{SmallVec, smallvec};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Mark {
    partial: Option<PartialKind>,
    replicated: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Term {
    Factor(String, Mark),
    Run(String, Mark),
    /// Each factor with its mark and its stated size, or 0.
    Compound(Vec<(String, Mark, u64)>),
    Fixed(u64),
}

/// A parsed rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    operands: Vec<Vec<Term>>,
    results: Vec<Vec<Term>>,
}

/// A factor of a rule, instantiated for concrete tensors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Factor {
    /// Its name; factors of a run are numbered: `m.0`, `m.1`.
    pub name: String,
    /// Its size.
    pub size: u64,
    /// The reduction that sharding it leaves pending on results that lack it.
    pub partial: Option<PartialKind>,
    /// It needs replication: no axis may shard it.
    pub replicated: bool,
    /// It needs replication because of a `!` or a fixed size, not because a result lacks it.
    pub marked_replicated: bool,
}

/// The factors of a dim: one, or several for a compound dim.
pub type DimFactors = SmallVec<[usize; 2]>;

/// The factors of each dim of one tensor.
pub type TensorFactors = Vec<DimFactors>;

/// A rule, instantiated for concrete tensors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    /// All factors, in order of appearance.
    pub factors: Vec<Factor>,
    /// Per operand.
    pub operands: Vec<TensorFactors>,
    /// Per result.
    pub results: Vec<TensorFactors>,
    /// All tensors are the same run of dims, or scalars: the op accepts flat shards that are equal on all tensors.
    pub pointwise: bool,
}

impl Rule {
    /// Parses a rule string.
    ///
    /// # Errors
    /// The string is malformed; the message has the place.
    pub fn parse(text: &str) -> Result<Rule, String> {
        let (operands, results) = text.split_once("->").ok_or_else(|| format!("rule `{text}` has no `->`"))?;
        let side = |side: &str| -> Result<Vec<Vec<Term>>, String> { side.split(',').map(parse_tensor).collect() };
        let operands = if operands.trim().is_empty() { Vec::new() } else { side(operands)? };
        Ok(Rule { operands, results: side(results)? })
    }

    /// The rule for these operands and results. It depends on the sizes of the dims, not on their shardings.
    ///
    /// # Errors
    /// The ranks or sizes do not match the rule.
    pub fn instantiate(&self, operands: &[&Type], results: &[&Type]) -> Result<Instance, String> {
        if (operands.len(), results.len()) != (self.operands.len(), self.results.len()) {
            return Err(format!(
                "takes {} operands and gives {} results, here {} and {}",
                self.operands.len(),
                self.results.len(),
                operands.len(),
                results.len()
            ));
        }
        let mut instance =
            Instance { factors: Vec::new(), operands: Vec::new(), results: Vec::new(), pointwise: self.is_pointwise() };
        for (terms, ty) in self.operands.iter().zip(operands) {
            let factors = instance.tensor(terms, ty)?;
            instance.operands.push(factors);
        }
        for (terms, ty) in self.results.iter().zip(results) {
            let factors = instance.tensor(terms, ty)?;
            instance.results.push(factors);
        }
        instance.close();
        Ok(instance)
    }

    fn is_pointwise(&self) -> bool {
        let mut run = None;
        self.operands.iter().chain(&self.results).all(|terms| match terms.as_slice() {
            [] => true,
            [Term::Run(name, _)] => *run.get_or_insert(name) == name,
            _ => false,
        }) && run.is_some()
    }
}

fn parse_tensor(text: &str) -> Result<Vec<Term>, String> {
    let text = text.trim();
    if text == "()" {
        return Ok(Vec::new());
    }
    let mut terms = Vec::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        if let Some(first) = word.strip_prefix('(') {
            let mut factors = vec![sized(first)];
            loop {
                let next = words.next().ok_or_else(|| format!("`(` without `)` in `{text}`"))?;
                factors.push(sized(next.trim_end_matches(')')));
                if next.ends_with(')') {
                    break;
                }
            }
            terms.push(Term::Compound(factors));
        } else if let Ok(size) = word.parse() {
            terms.push(Term::Fixed(size));
        } else {
            terms.push(parse_factor(word));
        }
    }
    Ok(terms)
}

fn sized(word: &str) -> (String, Mark, u64) {
    let (marked, size) = word.split_once('=').unwrap_or((word, ""));
    let (name, mark) = unmarked(marked);
    (name.to_string(), mark, size.parse().unwrap_or(0))
}

fn parse_factor(word: &str) -> Term {
    let (name, mark) = unmarked(word);
    match name.strip_prefix('*') {
        Some(run) => Term::Run(run.to_string(), mark),
        None => Term::Factor(name.to_string(), mark),
    }
}

/// A factor's name and its mark.
fn unmarked(word: &str) -> (&str, Mark) {
    let mut mark = Mark::default();
    let mut name = word;
    if let Some(rest) = name.strip_suffix('!') {
        mark.replicated = true;
        name = rest;
    }
    if let Some(rest) = name.strip_suffix("+max") {
        mark.partial = Some(PartialKind::Max);
        name = rest;
    } else if let Some(rest) = name.strip_suffix('+') {
        mark.partial = Some(PartialKind::Sum);
        name = rest;
    }
    (name, mark)
}

impl Instance {
    fn tensor(&mut self, terms: &[Term], ty: &Type) -> Result<TensorFactors, String> {
        let fixed = terms.iter().filter(|term| !matches!(term, Term::Run(..))).count();
        let has_run = fixed < terms.len();
        if ty.rank() < fixed || (!has_run && ty.rank() != fixed) {
            return Err(format!(
                "has rank {} where the rule wants {fixed}{}",
                ty.rank(),
                if has_run { " or more" } else { "" }
            ));
        }
        let run_length = ty.rank() - fixed;
        let mut sizes = ty.dims.iter().map(|dim| dim.size);
        let mut dims = TensorFactors::with_capacity(ty.rank());
        for term in terms {
            let mut next = || sizes.next().unwrap_or(0);
            match term {
                Term::Factor(name, mark) => dims.push(smallvec![self.factor(name, next(), *mark)?]),
                Term::Run(name, mark) => {
                    for place in 0..run_length {
                        dims.push(smallvec![self.factor_of_run(name, place, next(), *mark)?]);
                    }
                }
                Term::Fixed(size) => {
                    if next() != *size {
                        return Err(format!("wants a dim of {size}"));
                    }
                    let name = format!("{size}#{}", self.factors.len());
                    dims.push(smallvec![self.factor(&name, *size, Mark { replicated: true, partial: None })?]);
                }
                Term::Compound(names) => dims.push(self.compound(names, next())?),
            }
        }
        Ok(dims)
    }

    fn factor(&mut self, name: &str, size: u64, mark: Mark) -> Result<usize, String> {
        let found = self.factors.iter().position(|factor| factor.name == name);
        let index = found.unwrap_or_else(|| self.push(name.to_string(), size));
        self.mark(index, size, mark)
    }

    /// The factor of a run of dims at an index.
    fn factor_of_run(&mut self, run: &str, place: usize, size: u64, mark: Mark) -> Result<usize, String> {
        let place_of = |factor: &Factor| factor.name.strip_prefix(run)?.strip_prefix('.')?.parse().ok();
        let found = self.factors.iter().position(|factor| place_of(factor) == Some(place));
        let index = found.unwrap_or_else(|| self.push(format!("{run}.{place}"), size));
        self.mark(index, size, mark)
    }

    fn push(&mut self, name: String, size: u64) -> usize {
        self.factors.push(Factor { name, size, partial: None, replicated: false, marked_replicated: false });
        self.factors.len() - 1
    }

    /// Records another use of a factor, with this size and mark.
    fn mark(&mut self, index: usize, size: u64, mark: Mark) -> Result<usize, String> {
        let factor = &mut self.factors[index];
        // Size 0: a factor of a compound dim whose size is not known yet.
        if factor.size == 0 {
            factor.size = size;
        }
        if factor.size != size && size != 0 {
            return Err(format!("`{}` has size {} in one dim and {size} in another", factor.name, factor.size));
        }
        factor.partial = factor.partial.or(mark.partial);
        factor.replicated |= mark.replicated;
        factor.marked_replicated |= mark.replicated;
        Ok(index)
    }

    fn compound(&mut self, names: &[(String, Mark, u64)], size: u64) -> Result<DimFactors, String> {
        let factors = names
            .iter()
            .map(|(name, mark, size)| self.factor(name, *size, *mark))
            .collect::<Result<DimFactors, _>>()?;
        let product: u64 = factors.iter().map(|&l| self.factors[l].size).product();
        if product != 0 && product != size {
            let names: Vec<&str> = names.iter().map(|(name, ..)| name.as_str()).collect();
            return Err(format!("`({})` is {product}, not {size}", names.join(" ")));
        }
        Ok(factors)
    }

    /// Marks unmarked factors of operands that some result lacks: they need replication.
    fn close(&mut self) {
        for index in 0..self.factors.len() {
            let read = self.operands.iter().any(|tensor| holds(tensor, index));
            let lacking = self.results.iter().any(|tensor| !holds(tensor, index));
            let factor = &mut self.factors[index];
            factor.replicated |= read && lacking && factor.partial.is_none();
        }
    }

    /// The axes of each dim of a tensor, given the axes of each factor.
    pub fn dim_axes(&self, tensor: &TensorFactors, axes: &[Axes]) -> Vec<Axes> {
        let join = |factors: &DimFactors| factors.iter().fold(Axes::none(), |all, &factor| all.union(&axes[factor]));
        tensor.iter().map(join).collect()
    }

    /// The pending reduction of a result, given the axes of each factor.
    pub fn partial(&self, result: usize, axes: &[Axes]) -> Option<Partial> {
        let mut partial: Option<Partial> = None;
        for (index, factor) in self.factors.iter().enumerate() {
            if let (Some(kind), false) = (factor.partial, holds(&self.results[result], index) || axes[index].is_empty())
            {
                let unreduced = partial.map_or_else(Axes::none, |partial| partial.axes).union(&axes[index]).sorted();
                partial = Some(Partial { kind, axes: unreduced });
            }
        }
        partial
    }

    /// True if compound dims may have these axes (the law of `(i j)` in LANGUAGE). The axes of every factor but the last
    /// divide it evenly. A factor is sharded only if each shard of the factors before it holds one index.
    pub fn compounds_hold(&self, axes: &[Axes], mesh: &Mesh) -> bool {
        self.operands.iter().chain(&self.results).flatten().filter(|factors| factors.len() > 1).all(|factors| {
            factors.windows(2).all(|pair| {
                let (outer, inner) = (pair[0], pair[1]);
                let size = self.factors[outer].size;
                mesh.is_even(size, &axes[outer]) && (axes[inner].is_empty() || mesh.size(&axes[outer]) == size)
            })
        })
    }
}

/// True if a dim of the tensor has the factor.
pub fn holds(tensor: &TensorFactors, factor: usize) -> bool {
    tensor.iter().any(|factors| factors.contains(&factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AxisId;
    use crate::types::DType;
    use cranelift_entity::EntityRef;

    fn instance(rule: &str, operands: &[&[u64]], results: &[&[u64]]) -> Result<Instance, String> {
        let types = |sizes: &[&[u64]]| sizes.iter().map(|s| Type::of(DType::F32, s)).collect::<Vec<_>>();
        let (operands, results) = (types(operands), types(results));
        Rule::parse(rule)?.instantiate(&operands.iter().collect::<Vec<_>>(), &results.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_contracted_factor_leaves_a_sum() {
        let matmul = instance("*m k+, k+ n -> *m n", &[&[2, 3, 4], &[4, 5]], &[&[2, 3, 5]]).unwrap();
        let k = matmul.factors.iter().position(|l| l.name == "k").unwrap();
        let mut axes = vec![Axes::none(); matmul.factors.len()];
        axes[k] = Axes::one(AxisId::new(0));
        assert_eq!(matmul.partial(0, &axes), Some(Partial { kind: PartialKind::Sum, axes: axes[k].clone() }));
        assert!(!matmul.factors[k].replicated && !matmul.pointwise);
    }

    #[test]
    fn an_unmarked_factor_that_a_result_lacks_needs_replication() {
        let slice = instance("*m i! -> *m j!", &[&[2, 3]], &[&[2, 1]]).unwrap();
        assert!(slice.factors.iter().filter(|l| l.replicated).count() == 2);
        let pick = instance("*m i -> *m", &[&[2, 3]], &[&[2]]).unwrap();
        assert!(pick.factors[1].replicated && !pick.factors[1].marked_replicated);
    }

    #[test]
    fn sizes_and_ranks_must_fit() {
        assert!(instance("*m k+, k+ n -> *m n", &[&[2, 4], &[3, 5]], &[&[2, 5]]).is_err());
        assert!(instance("a b -> a", &[&[2]], &[&[2]]).is_err());
        assert!(instance("*m i j -> *m (i j)", &[&[2, 3, 4]], &[&[2, 11]]).is_err());
        assert!(instance("*m i j -> *m (i j)", &[&[2, 3, 4]], &[&[2, 12]]).is_ok());
    }
}
