//! Rules of a stack: conditions on the numbers of a configuration and its job.
//!
//! A rule is an expression over whole numbers, such as `cp == 1 || seq % (2 * cp) == 0`. Operators, from the weakest:
//! `||`, `&&`, comparisons, `+ -`, `* / %`. A comparison is 1 or 0, and a rule holds unless it is 0.

use ir::config_key::ConfigKey;
use serde::{Deserialize, Serialize};

/// Numbers that a rule may name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum RuleName {
    /// Data-parallel ranks.
    Dp,
    /// Tensor-parallel ranks.
    Tp,
    /// Pipeline ranks.
    Pp,
    /// Context-parallel ranks.
    Cp,
    /// Ranks that hold different experts.
    Ep,
    /// Ranks that share an expert.
    Etp,
    /// 1 under sequence parallelism.
    Sp,
    /// 1 if context parallelism is a ring.
    Ring,
    /// 1 if context parallelism shards heads.
    Ulysses,
    /// Sequences of a micro-batch.
    Mbs,
    /// Micro-batches of a step.
    Microbatches,
    /// Stages of a pipeline rank.
    Vp,
    /// Slices of a sequence.
    Slices,
    /// 1 if the configuration sets stage boundaries.
    Boundaries,
    /// ZeRO stage.
    Zero,
    /// 1 if ZeRO shards within groups of ranks.
    Groups,
    /// 1 if ZeRO-3 gathers parameters once a step.
    Gather,
    /// 1 if saved activations are offloaded.
    Offload,
    /// 1 if optimizer states are in host memory between updates.
    OffloadOptimizer,
    /// 0: nothing is recomputed; 1: parts of layers; 2: layers.
    Recompute,
    /// Tokens of a sequence.
    Seq,
    /// Layers of the model.
    Layers,
    /// Heads of keys and values.
    KvHeads,
    /// Experts of a layer; 0 without experts.
    Experts,
    /// Micro-batches that go through a chunk of a rank before its next chunk, unless the configuration says otherwise the pipeline ranks.
    Group,
    /// ZeRO groups of the data-parallel and context-parallel ranks.
    Instances,
    /// 1 if pipeline ranks are the outermost axis.
    PpOuter,
    /// 1 if norms are recomputed as a module.
    RecomputesLayernorm,
    /// 1 if activations of experts are recomputed as a module.
    RecomputesMoeAct,
    /// 1 if projections of latent vectors are recomputed as a module.
    RecomputesMlaUpProj,
    /// 1 if layers of experts are recomputed as a module.
    RecomputesMoe,
    /// Query heads.
    Heads,
    /// 1 if keys and values come from a latent vector.
    Mla,
    /// 1 if matrices of experts have biases.
    ExpertBias,
    /// 1 if products are in 8 bits by scales of earlier steps.
    DelayedScaling,
    /// 1 if optimizer states are of 16 bits.
    NarrowStates,
    /// 1 if the optimizer is Adam.
    Adam,
    /// Greatest common divisor of the lengths of packed documents; 0 if a sequence is one document.
    Documents,
    /// 1 if the head has the parameters of the embedding.
    Tied,
    /// First layers without experts, of a model whose other layers have experts.
    FirstDense,
}

impl RuleName {
    /// All names, as rules write them.
    pub const ALL: [(&str, RuleName); 40] = [
        ("dp", RuleName::Dp),
        ("tp", RuleName::Tp),
        ("pp", RuleName::Pp),
        ("cp", RuleName::Cp),
        ("ep", RuleName::Ep),
        ("etp", RuleName::Etp),
        ("sp", RuleName::Sp),
        ("ring", RuleName::Ring),
        ("ulysses", RuleName::Ulysses),
        ("mbs", RuleName::Mbs),
        ("microbatches", RuleName::Microbatches),
        ("vp", RuleName::Vp),
        ("slices", RuleName::Slices),
        ("boundaries", RuleName::Boundaries),
        ("zero", RuleName::Zero),
        ("groups", RuleName::Groups),
        ("gather", RuleName::Gather),
        ("offload", RuleName::Offload),
        ("offload_optimizer", RuleName::OffloadOptimizer),
        ("recompute", RuleName::Recompute),
        ("seq", RuleName::Seq),
        ("layers", RuleName::Layers),
        ("kv_heads", RuleName::KvHeads),
        ("experts", RuleName::Experts),
        ("group", RuleName::Group),
        ("instances", RuleName::Instances),
        ("pp_outer", RuleName::PpOuter),
        ("recomputes_layernorm", RuleName::RecomputesLayernorm),
        ("recomputes_moe_act", RuleName::RecomputesMoeAct),
        ("recomputes_mla_up_proj", RuleName::RecomputesMlaUpProj),
        ("recomputes_moe", RuleName::RecomputesMoe),
        ("heads", RuleName::Heads),
        ("mla", RuleName::Mla),
        ("expert_bias", RuleName::ExpertBias),
        ("delayed_scaling", RuleName::DelayedScaling),
        ("narrow_states", RuleName::NarrowStates),
        ("adam", RuleName::Adam),
        ("documents", RuleName::Documents),
        ("tied", RuleName::Tied),
        ("first_dense", RuleName::FirstDense),
    ];

    /// Keys of a configuration that the number depends on; none of a number of the job.
    pub fn keys(self) -> &'static [ConfigKey] {
        match self {
            RuleName::Dp => &[ConfigKey::Dp],
            RuleName::Tp => &[ConfigKey::Tp],
            RuleName::Pp => &[ConfigKey::Pp],
            RuleName::Cp => &[ConfigKey::Cp],
            RuleName::Ep => &[ConfigKey::Ep],
            RuleName::Etp => &[ConfigKey::Etp],
            RuleName::Sp => &[ConfigKey::Sp],
            RuleName::Ring | RuleName::Ulysses => &[ConfigKey::Cp, ConfigKey::CpKind],
            RuleName::Mbs => &[ConfigKey::Mbs],
            RuleName::Microbatches => &[ConfigKey::Dp, ConfigKey::Mbs],
            RuleName::Vp => &[ConfigKey::Pp, ConfigKey::Schedule, ConfigKey::Vp],
            RuleName::Slices => &[ConfigKey::Schedule, ConfigKey::Slices],
            RuleName::Boundaries => &[ConfigKey::Stages],
            RuleName::Zero => &[ConfigKey::Zero],
            RuleName::Groups => &[ConfigKey::Zero, ConfigKey::Shard, ConfigKey::Dp, ConfigKey::Cp],
            RuleName::Gather => &[ConfigKey::Zero, ConfigKey::Gather],
            RuleName::Offload => &[ConfigKey::Offload],
            RuleName::OffloadOptimizer => &[ConfigKey::OffloadOptimizer],
            RuleName::Recompute => &[ConfigKey::Recompute],
            RuleName::Group => &[ConfigKey::Pp, ConfigKey::Schedule, ConfigKey::Vp, ConfigKey::Group],
            RuleName::Instances => &[ConfigKey::Zero, ConfigKey::Shard, ConfigKey::Dp, ConfigKey::Cp],
            RuleName::PpOuter => &[ConfigKey::RankOrder],
            RuleName::RecomputesLayernorm
            | RuleName::RecomputesMoeAct
            | RuleName::RecomputesMlaUpProj
            | RuleName::RecomputesMoe => &[ConfigKey::Recompute],
            RuleName::Seq
            | RuleName::Layers
            | RuleName::KvHeads
            | RuleName::Experts
            | RuleName::Heads
            | RuleName::Mla
            | RuleName::ExpertBias
            | RuleName::DelayedScaling
            | RuleName::NarrowStates
            | RuleName::Adam
            | RuleName::Documents
            | RuleName::Tied
            | RuleName::FirstDense => &[],
        }
    }

    /// The name as rules write it.
    pub fn text(self) -> &'static str {
        RuleName::ALL[self as usize].0
    }
}

/// The known ones of the numbers that rules name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleNumbers([Option<u64>; RuleName::ALL.len()]);

impl Default for RuleNumbers {
    /// No number is known.
    fn default() -> RuleNumbers {
        RuleNumbers([None; RuleName::ALL.len()])
    }
}

impl RuleNumbers {
    /// The number of each name; `None` if it is not known.
    pub fn of(number: impl Fn(RuleName) -> Option<u64>) -> RuleNumbers {
        let mut numbers = [None; RuleName::ALL.len()];
        RuleName::ALL.iter().for_each(|&(_, name)| numbers[name as usize] = number(name));
        RuleNumbers(numbers)
    }

    /// The number of a name, if it is known.
    pub fn get(&self, name: RuleName) -> Option<u64> {
        self.0[name as usize]
    }
}

/// A condition that a framework needs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    text: String,
    condition: Expression,
}

#[derive(Clone, PartialEq, Debug)]
enum Expression {
    Number(i64),
    Name(RuleName),
    Both(Operator, Box<Expression>, Box<Expression>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Or,
    And,
    Equal,
    Differs,
    AtMost,
    AtLeast,
    Less,
    Greater,
    Plus,
    Minus,
    Times,
    Over,
    Modulo,
}

/// Operators as written, with the strength by which they bind. A longer one comes before its beginning.
const OPERATORS: [(&str, Operator, u8); 13] = [
    ("||", Operator::Or, 1),
    ("&&", Operator::And, 2),
    ("==", Operator::Equal, 3),
    ("!=", Operator::Differs, 3),
    ("<=", Operator::AtMost, 3),
    (">=", Operator::AtLeast, 3),
    ("<", Operator::Less, 3),
    (">", Operator::Greater, 3),
    ("+", Operator::Plus, 4),
    ("-", Operator::Minus, 4),
    ("*", Operator::Times, 5),
    ("/", Operator::Over, 5),
    ("%", Operator::Modulo, 5),
];

impl Rule {
    /// Returns whether the condition is violated, whatever the unknown numbers are.
    pub fn forbids(&self, numbers: &RuleNumbers) -> bool {
        self.condition.value(numbers) == Some(0)
    }

    /// The numbers that it names.
    pub fn names(&self) -> Vec<RuleName> {
        let mut names = Vec::new();
        self.condition.add_names(&mut names);
        names
    }

    /// The condition as written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> String {
        rule.text
    }
}

impl TryFrom<String> for Rule {
    type Error = String;

    fn try_from(text: String) -> Result<Rule, String> {
        let mut reader = Reader { rest: &text, depth: 0 };
        let condition = reader.expression(1).map_err(|why| format!("the rule `{text}` {why}"))?;
        match reader.rest.trim_start() {
            "" => Ok(Rule { condition, text }),
            rest => Err(format!("the rule `{text}` has `{rest}` after its end")),
        }
    }
}

/// Reader of a rule's text.
struct Reader<'a> {
    rest: &'a str,
    /// Open parentheses.
    depth: usize,
}

/// Most open parentheses of a rule.
const DEEPEST: usize = 32;

impl Reader<'_> {
    /// An expression whose operators bind at least this strongly.
    fn expression(&mut self, least: u8) -> Result<Expression, String> {
        let mut left = self.operand()?;
        loop {
            self.rest = self.rest.trim_start();
            let next = OPERATORS.iter().find(|(text, ..)| self.rest.starts_with(text));
            let Some(&(text, operator, strength)) = next.filter(|(.., strength)| *strength >= least) else {
                return Ok(left);
            };
            self.rest = &self.rest[text.len()..];
            let right = self.expression(strength + 1)?;
            left = Expression::Both(operator, Box::new(left), Box::new(right));
        }
    }

    /// A number, a name, or an expression in parentheses.
    fn operand(&mut self) -> Result<Expression, String> {
        self.rest = self.rest.trim_start();
        if let Some(inner) = self.rest.strip_prefix('(') {
            self.rest = inner;
            self.depth += 1;
            if self.depth > DEEPEST {
                return Err(format!("has more than {DEEPEST} open parentheses"));
            }
            let inner = self.expression(1)?;
            self.depth -= 1;
            let after = self.rest.trim_start().strip_prefix(')').map(str::to_string);
            let after = after.ok_or_else(|| "lacks a `)`".to_string())?;
            self.rest = &self.rest[self.rest.len() - after.len()..];
            return Ok(inner);
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if let Ok(number) = word.parse() {
            return Ok(Expression::Number(number));
        }
        let name = RuleName::ALL.iter().find(|(name, _)| *name == word).map(|(_, name)| Expression::Name(*name));
        name.ok_or_else(|| {
            let known = RuleName::ALL.map(|(name, _)| name).join(", ");
            format!("has `{word}` where a number, a `(` or one of these is expected: {known}")
        })
    }
}

impl Expression {
    fn add_names(&self, names: &mut Vec<RuleName>) {
        match self {
            Expression::Number(_) => {}
            Expression::Name(name) => names.push(*name),
            Expression::Both(_, left, right) => {
                left.add_names(names);
                right.add_names(names);
            }
        }
    }

    /// The value; `None` if it depends on an unknown number, or does not exist.
    fn value(&self, numbers: &RuleNumbers) -> Option<i64> {
        let (operator, left, right) = match self {
            Expression::Number(number) => return Some(*number),
            Expression::Name(name) => return i64::try_from(numbers.get(*name)?).ok(),
            Expression::Both(operator, left, right) => (operator, left.value(numbers), right.value(numbers)),
        };
        // One side may decide.
        match (operator, left, right) {
            (Operator::Or, Some(side), _) | (Operator::Or, _, Some(side)) if side != 0 => return Some(1),
            (Operator::And, Some(0), _) | (Operator::And, _, Some(0)) => return Some(0),
            _ => {}
        }
        operator.apply(left?, right?)
    }
}

impl Operator {
    fn apply(self, left: i64, right: i64) -> Option<i64> {
        let is_so = match self {
            Operator::Or => left != 0 || right != 0,
            Operator::And => left != 0 && right != 0,
            Operator::Equal => left == right,
            Operator::Differs => left != right,
            Operator::AtMost => left <= right,
            Operator::AtLeast => left >= right,
            Operator::Less => left < right,
            Operator::Greater => left > right,
            Operator::Plus => return left.checked_add(right),
            Operator::Minus => return left.checked_sub(right),
            Operator::Times => return left.checked_mul(right),
            Operator::Over => return left.checked_div(right),
            Operator::Modulo => return left.checked_rem(right),
        };
        Some(i64::from(is_so))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forbids(rule: &str, numbers: &[(RuleName, u64)]) -> bool {
        let known = RuleNumbers::of(|name| numbers.iter().find(|known| known.0 == name).map(|known| known.1));
        Rule::try_from(rule.to_string()).unwrap().forbids(&known)
    }

    #[test]
    fn operators_bind_as_in_arithmetic() {
        let numbers = [(RuleName::Cp, 4), (RuleName::Seq, 24), (RuleName::Tp, 2)];
        for (rule, forbidden) in [
            ("seq % (2 * cp) == 0", false),
            ("seq % 2 * cp == 1", true),
            ("1 + 2 * 3 - 4 / 2 == 5", false),
            ("cp == 1 || tp > 1 && seq >= 24", false),
            ("(cp == 1 || tp > 1) && seq < 24", true),
            ("cp != 4", true),
            ("seq / 0 == 1", false),
        ] {
            assert_eq!(forbids(rule, &numbers), forbidden, "{rule}");
        }
    }

    /// Unknown numbers forbid nothing, unless the known ones decide.
    #[test]
    fn unknown_numbers_leave_a_rule_open() {
        let rule = "cp == 1 || seq % (2 * cp) == 0";
        assert!(!forbids(rule, &[(RuleName::Seq, 6)]));
        assert!(!forbids(rule, &[(RuleName::Cp, 4)]));
        assert!(forbids(rule, &[(RuleName::Seq, 6), (RuleName::Cp, 4)]));
        assert!(forbids("pp == 1 && zero < 2", &[(RuleName::Pp, 2)]));
    }

    #[test]
    fn a_wrong_rule_says_where() {
        let wrong = |rule: &str| Rule::try_from(rule.to_string()).unwrap_err();
        assert!(wrong("cpp == 1").contains("`cpp`") && wrong("cpp == 1").contains("kv_heads"));
        assert!(wrong("(cp == 1").contains("lacks a `)`"));
        assert!(wrong("cp == 1 tp").contains("`tp` after its end"));
        assert!(wrong("").contains("``") && wrong(&"(".repeat(99)).contains("open parentheses"));
    }
}
