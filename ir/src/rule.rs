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
use std::fmt;

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

impl Factor {
    /// Its index in a run of dims, if it belongs to that.
    fn place_in(&self, run: &str) -> Option<usize> {
        self.name.strip_prefix(run)?.strip_prefix('.')?.parse().ok()
    }
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

/// Error: a rule string is malformed, or does not apply to some tensors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RuleError {
    /// The string has no `->`.
    NoArrow(String),
    /// A compound dim of this tensor does not end.
    Unclosed(String),
    /// Other numbers of operands and results.
    TensorCount {
        /// The numbers of operands and of results that the rule has.
        wanted: (usize, usize),
        /// The numbers of those that it is applied to.
        got: (usize, usize),
    },
    /// A tensor has too few or too many dims.
    Rank {
        /// Its rank.
        rank: usize,
        /// The dims of the rule, but those of a run.
        wanted: usize,
        /// True if the rule has a run of dims too.
        has_run: bool,
    },
    /// A dim does not have the size that the rule states.
    FixedSize(u64),
    /// A factor has several sizes.
    FactorSize {
        /// Its name.
        factor: String,
        /// Its size so far.
        size: u64,
        /// Its size in another dim.
        other: u64,
    },
    /// The factors of a compound dim do not give its size.
    CompoundSize {
        /// The factors.
        factors: String,
        /// Their product.
        product: u64,
        /// The size of the dim.
        size: u64,
    },
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleError::NoArrow(rule) => write!(f, "rule `{rule}` has no `->`"),
            RuleError::Unclosed(tensor) => write!(f, "`(` without `)` in `{tensor}`"),
            RuleError::TensorCount { wanted, got } => {
                write!(f, "takes {} operands and gives {} results, here {} and {}", wanted.0, wanted.1, got.0, got.1)
            }
            RuleError::Rank { rank, wanted, has_run } => {
                let or_more = if *has_run { " or more" } else { "" };
                write!(f, "has rank {rank} where the rule wants {wanted}{or_more}")
            }
            RuleError::FixedSize(size) => write!(f, "wants a dim of {size}"),
            RuleError::FactorSize { factor, size, other } => {
                write!(f, "`{factor}` has size {size} in one dim and {other} in another")
            }
            RuleError::CompoundSize { factors, product, size } => write!(f, "`({factors})` is {product}, not {size}"),
        }
    }
}

impl std::error::Error for RuleError {}

impl Rule {
    /// Parses a rule string.
    ///
    /// # Errors
    /// The string is malformed.
    pub fn parse(text: &str) -> Result<Rule, RuleError> {
        let (operands, results) = text.split_once("->").ok_or_else(|| RuleError::NoArrow(text.to_string()))?;
        let operands = if operands.trim().is_empty() { Vec::new() } else { parse_tensors(operands)? };
        Ok(Rule { operands, results: parse_tensors(results)? })
    }

    /// The rule for these operands and results. It depends on the sizes of the dims, not on their shardings.
    ///
    /// # Errors
    /// The ranks or sizes do not match the rule.
    pub fn instantiate(&self, operands: &[&Type], results: &[&Type]) -> Result<Instance, RuleError> {
        if (operands.len(), results.len()) != (self.operands.len(), self.results.len()) {
            return Err(RuleError::TensorCount {
                wanted: (self.operands.len(), self.results.len()),
                got: (operands.len(), results.len()),
            });
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

fn parse_tensors(side: &str) -> Result<Vec<Vec<Term>>, RuleError> {
    side.split(',').map(parse_tensor).collect()
}

fn parse_tensor(text: &str) -> Result<Vec<Term>, RuleError> {
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
                let next = words.next().ok_or_else(|| RuleError::Unclosed(text.to_string()))?;
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
    fn tensor(&mut self, terms: &[Term], ty: &Type) -> Result<TensorFactors, RuleError> {
        let fixed = terms.iter().filter(|term| !matches!(term, Term::Run(..))).count();
        let has_run = fixed < terms.len();
        if ty.rank() < fixed || (!has_run && ty.rank() != fixed) {
            return Err(RuleError::Rank { rank: ty.rank(), wanted: fixed, has_run });
        }
        let run_length = ty.rank() - fixed;
        let mut dims = TensorFactors::with_capacity(ty.rank());
        for term in terms {
            // The number of dims matches: the next one exists, unless the term is a run without dims.
            let size = ty.dims.get(dims.len()).map_or(0, |dim| dim.size);
            match term {
                Term::Factor(name, mark) => dims.push(smallvec![self.factor(name, size, *mark)?]),
                Term::Run(name, mark) => {
                    let run = &ty.dims[dims.len()..dims.len() + run_length];
                    for (place, dim) in run.iter().enumerate() {
                        dims.push(smallvec![self.factor_of_run(name, place, dim.size, *mark)?]);
                    }
                }
                Term::Fixed(wanted) => {
                    if size != *wanted {
                        return Err(RuleError::FixedSize(*wanted));
                    }
                    let name = format!("{size}#{}", self.factors.len());
                    dims.push(smallvec![self.factor(&name, size, Mark { replicated: true, partial: None })?]);
                }
                Term::Compound(names) => dims.push(self.compound(names, size)?),
            }
        }
        Ok(dims)
    }

    fn factor(&mut self, name: &str, size: u64, mark: Mark) -> Result<usize, RuleError> {
        let found = self.factors.iter().position(|factor| factor.name == name);
        let index = found.unwrap_or_else(|| self.push(name.to_string(), size));
        self.mark(index, size, mark)
    }

    /// The factor of a run of dims at an index.
    fn factor_of_run(&mut self, run: &str, place: usize, size: u64, mark: Mark) -> Result<usize, RuleError> {
        let found = self.factors.iter().position(|factor| factor.place_in(run) == Some(place));
        let index = found.unwrap_or_else(|| self.push(format!("{run}.{place}"), size));
        self.mark(index, size, mark)
    }

    fn push(&mut self, name: String, size: u64) -> usize {
        self.factors.push(Factor { name, size, partial: None, replicated: false, marked_replicated: false });
        self.factors.len() - 1
    }

    /// Records another use of a factor, with this size and mark.
    fn mark(&mut self, index: usize, size: u64, mark: Mark) -> Result<usize, RuleError> {
        let factor = &mut self.factors[index];
        // Size 0: a factor of a compound dim whose size is not known yet.
        if factor.size == 0 {
            factor.size = size;
        }
        if factor.size != size && size != 0 {
            return Err(RuleError::FactorSize { factor: factor.name.clone(), size: factor.size, other: size });
        }
        factor.partial = factor.partial.or(mark.partial);
        factor.replicated |= mark.replicated;
        factor.marked_replicated |= mark.replicated;
        Ok(index)
    }

    fn compound(&mut self, names: &[(String, Mark, u64)], size: u64) -> Result<DimFactors, RuleError> {
        let factors = names
            .iter()
            .map(|(name, mark, size)| self.factor(name, *size, *mark))
            .collect::<Result<DimFactors, _>>()?;
        let product: u64 = factors.iter().map(|&l| self.factors[l].size).product();
        if product != 0 && product != size {
            let names: Vec<&str> = names.iter().map(|(name, ..)| name.as_str()).collect();
            return Err(RuleError::CompoundSize { factors: names.join(" "), product, size });
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
        let mut dims = Vec::with_capacity(tensor.len());
        for factors in tensor {
            dims.push(factors.iter().fold(Axes::none(), |all, &factor| all.union(&axes[factor])));
        }
        dims
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

    fn instance(rule: &str, operands: &[&[u64]], results: &[&[u64]]) -> Result<Instance, RuleError> {
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
