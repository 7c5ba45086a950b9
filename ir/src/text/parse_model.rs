//! Parameters, and the model: its inputs and its calls.

use super::cursor::{Failed, Parsed, Parser, Scope};
use super::lex::Kind;
use crate::catalogue::Code;
use crate::graph::{ArgKind, Call, Init, ModelInput, Param, ParamIndex, ParamRef, Repeat, Span};
use crate::ids::{BlockId, ModelValue};

/// The repeat of a call.
type Head<'a> = Option<&'a Repeat>;

impl<'s> Parser<'s> {
    /// `param %layer[32].w1: f32[h, f] init=normal(0.02) decay=true`
    pub(super) fn param(&mut self) -> Parsed<()> {
        let comments = self.take_comments();
        let start = self.span();
        self.expect("param")?;
        let name = self.take(Kind::Value, "the parameter's name")?.to_string();
        let (mut count, mut field) = (None, None);
        if self.eat("[") {
            count = Some(self.int("a count")?);
            self.expect("]")?;
            if self.eat(".") {
                field = Some(self.take(Kind::Ident, "a field")?.to_string());
            }
        }
        let known = &self.known.params;
        if known.contains(&(name.clone(), None)) || known.contains(&(name.clone(), field.clone())) {
            let span = self.since(start);
            return Err(self.fail(Code::Redefinition, span, format!("parameter `%{name}` is already defined")));
        }
        self.expect(":")?;
        let ty = self.ty()?;
        let mut param = Param {
            name,
            field,
            count,
            ty,
            init: Init::Constant(0.0),
            decay: false,
            frozen: false,
            part_of: None,
            comments,
            span: start,
        };
        while self.at_kind(Kind::Ident) {
            self.param_attr(&mut param)?;
        }
        param.span = self.since(start);
        self.known.params.insert((param.name.clone(), param.field.clone()));
        self.model.params.push(param);
        self.no_more()
    }

    fn param_attr(&mut self, param: &mut Param) -> Parsed<()> {
        let span = self.span();
        let name = self.bump();
        self.expect("=")?;
        match name {
            "init" => param.init = self.init()?,
            "decay" => param.decay = self.truth()?,
            "frozen" => param.frozen = self.truth()?,
            "part_of" => param.part_of = Some(self.take(Kind::Ident, "the name of a matrix")?.to_string()),
            _ => {
                let known = ["init", "decay", "frozen", "part_of"].map(str::to_string);
                let message = format!("a parameter has no attribute `{name}`");
                return Err(self.unknown(Code::UnknownAttribute, span, message, name, &known));
            }
        }
        Ok(())
    }

    fn truth(&mut self) -> Parsed<bool> {
        let is_true = self.eat("true");
        if is_true || self.eat("false") { Ok(is_true) } else { Err(self.expected("`true` or `false`")) }
    }

    fn init(&mut self) -> Parsed<Init> {
        let span = self.span();
        let name = self.take(Kind::Ident, "`normal(..)`, `constant(..)` or another initializer")?;
        self.expect("(")?;
        let number = self.float("a number")?;
        let of_two: Option<fn(f64, f64) -> Init> = match name {
            "log_uniform" => Some(Init::LogUniform),
            "inverse_softplus" => Some(Init::InverseSoftplus),
            _ => None,
        };
        if let Some(of_two) = of_two {
            self.expect(",")?;
            let high = self.float("a number")?;
            self.expect(")")?;
            return Ok(of_two(number, high));
        }
        self.expect(")")?;
        match name {
            "normal" => Ok(Init::Normal(number)),
            "constant" => Ok(Init::Constant(number)),
            "waves" => Ok(Init::Waves(number)),
            "log_count" => Ok(Init::LogCount(number)),
            _ => {
                let known = ["normal", "constant", "waves", "log_count", "log_uniform", "inverse_softplus"];
                let known = known.map(str::to_string);
                Err(self.unknown(Code::UnknownAttribute, span, format!("there is no init `{name}`"), name, &known))
            }
        }
    }

    /// `model @name(inputs) offload_states { calls }`
    pub(super) fn model(&mut self) -> Parsed<()> {
        self.expect("model")?;
        self.scope = Scope::default();
        self.model.name = self.take(Kind::At, "the model's name")?.to_string();
        self.expect("(")?;
        self.list(")", |p| p.model_input())?;
        self.model.offload_states = self.eat("offload_states");
        self.expect("{")?;
        while !self.done() && !self.at("}") {
            let place = self.place();
            match self.call() {
                Ok(call) => self.model.calls.push(call),
                Err(_) => self.recover_call(place),
            }
        }
        self.expect("}")?;
        self.no_more()
    }

    fn model_input(&mut self) -> Parsed<()> {
        let span = self.span();
        let name = self.take(Kind::Value, "an input")?;
        self.expect(":")?;
        let kind = match () {
            () if self.eat("input") => ArgKind::Input,
            () if self.eat("const") => ArgKind::Const,
            () => return Err(self.expected("`input` or `const`")),
        };
        let ty = self.ty()?;
        let value = self.define_model_value(name, span)?;
        self.model.inputs.push(ModelInput { value, kind, ty });
        Ok(())
    }

    /// Defines the values of a failed call, so that their readers are not reported.
    fn recover_call(&mut self, from: usize) {
        if self.place() == from {
            self.bump();
        }
        self.skip_line();
        let names: Vec<&str> = {
            let taken = self.tokens()[from..self.place()].iter();
            let results = taken.take_while(|token| token.text != "=");
            results.filter(|token| token.kind == Kind::Value).map(|token| token.text).collect()
        };
        self.scope.poisoned.extend(names.into_iter().map(str::to_string));
    }

    fn define_model_value(&mut self, name: &str, span: Span) -> Parsed<ModelValue> {
        if self.known.values.contains_key(name) {
            return Err(self.fail(Code::Redefinition, span, format!("`%{name}` is already defined")));
        }
        let value = self.model.values.push(name.to_string());
        self.known.values.insert(name.to_string(), value);
        Ok(value)
    }

    /// The model's value of a name.
    pub(super) fn model_value(&mut self, name: &str, span: Span) -> Parsed<ModelValue> {
        if let Some(&value) = self.known.values.get(name) {
            return Ok(value);
        }
        if self.scope.poisoned.contains(name) {
            return Err(Failed);
        }
        let known: Vec<String> = self.model.values.values().map(|name| format!("%{name}")).collect();
        let message = format!("`%{name}` is not defined here");
        Err(self.unknown(Code::UndefinedValue, span, message, &format!("%{name}"), &known))
    }

    /// The block of a name.
    pub(super) fn block_named(&mut self, name: &str, span: Span) -> Parsed<BlockId> {
        if let Some(&id) = self.known.blocks.get(name) {
            return Ok(id);
        }
        if self.failed_names.contains(name) {
            return Err(Failed);
        }
        let blocks = self.model.blocks.values().map(|block| &block.name);
        let mut known: Vec<String> = blocks.chain(&self.failed_names).map(|name| format!("@{name}")).collect();
        known.sort();
        let message = format!("there is no block `@{name}`");
        Err(self.unknown(Code::UnknownBlock, span, message, &format!("@{name}"), &known))
    }

    fn call(&mut self) -> Parsed<Call> {
        let comments = self.take_comments();
        let start = self.span();
        let names = self.values()?;
        if !names.is_empty() {
            self.expect("=")?;
        }
        let repeat = self.call_head()?;
        let span = self.span();
        let block = self.take(Kind::At, "a block")?;
        let block = self.block_named(block, span)?;
        let (args, params) = self.call_args(repeat.as_ref())?;
        let slice = self.call_slice()?;
        let offload = self.eat("offload");
        let results =
            names.into_iter().map(|(name, span)| self.define_model_value(name, span)).collect::<Parsed<Vec<_>>>()?;
        Ok(Call { results, block, repeat, args, params, slice, offload, comments, span: self.since(start) })
    }

    fn call_head(&mut self) -> Parsed<Option<Repeat>> {
        if self.eat("call") {
            return Ok(None);
        }
        if !self.eat("repeat") {
            return Err(self.expected("`call` or `repeat`"));
        }
        let variable = self.take(Kind::Ident, "the repeat's variable")?.to_string();
        self.expect("in")?;
        let range = self.range()?;
        Ok(Some(Repeat { variable, range }))
    }

    /// `0..32`
    pub(super) fn range(&mut self) -> Parsed<std::ops::Range<u32>> {
        let first = self.int("a number")?;
        self.expect("..")?;
        Ok(first..self.int("a number")?)
    }

    /// `(%x, %pos; %layer[i])`
    fn call_args(&mut self, repeat: Head<'_>) -> Parsed<(Vec<ModelValue>, Vec<ParamRef>)> {
        self.expect("(")?;
        let mut args = Vec::new();
        for (name, span) in self.values()? {
            args.push(self.model_value(name, span)?);
        }
        if self.eat(";") {
            return Ok((args, self.list(")", |p| p.param_ref(repeat))?));
        }
        self.expect(")")?;
        Ok((args, Vec::new()))
    }

    /// `slice=1`
    fn call_slice(&mut self) -> Parsed<Option<u32>> {
        if !self.eat("slice") {
            return Ok(None);
        }
        self.expect("=")?;
        self.int("a slice").map(Some)
    }

    fn repeat_variable(&mut self, repeat: Head<'_>) -> Parsed<()> {
        let span = self.span();
        let name = self.take(Kind::Ident, "an index or the repeat's variable")?;
        match repeat {
            Some(repeat) if repeat.variable == name => Ok(()),
            Some(repeat) => {
                let known = [repeat.variable.clone()];
                Err(self.unknown(
                    Code::UndefinedValue,
                    span,
                    format!("`{name}` is not the variable of this repeat"),
                    name,
                    &known,
                ))
            }
            None => Err(self.fail(
                Code::UndefinedValue,
                span,
                format!("`{name}` is not defined: the call is not a `repeat`"),
            )),
        }
    }

    fn param_ref(&mut self, repeat: Head<'_>) -> Parsed<ParamRef> {
        let span = self.span();
        let name = self.take(Kind::Value, "a parameter")?.to_string();
        let mut index = ParamIndex::Whole;
        if self.eat("[") {
            index = if self.at_kind(Kind::Int) { ParamIndex::At(self.int("an index")?) } else { ParamIndex::Repeat };
            if index == ParamIndex::Repeat {
                self.repeat_variable(repeat)?;
            }
            self.expect("]")?;
        }
        let model = &self.model;
        let mut constants = model.inputs.iter().filter(|input| input.kind == ArgKind::Const);
        let is_constant = constants.any(|input| model.values[input.value] == name);
        if !is_constant && !model.params.values().any(|param| param.name == name) {
            let known: Vec<String> = model.params.values().map(|param| format!("%{}", param.name)).collect();
            let message = format!("there is no parameter `%{name}`");
            return Err(self.unknown(Code::UnknownParam, span, message, &format!("%{name}"), &known));
        }
        Ok(ParamRef { name, index })
    }
}
