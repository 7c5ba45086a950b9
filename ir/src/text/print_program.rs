//! Printing of programs. The grammar is in [`crate::program`].

use super::parse_program::SOURCES;
use super::print::{Printer, join_args, print_values, wrap};
use super::print_file::print_param_name;
use crate::arena::{Arena, Frame, Place, Role};
use crate::graph::Model;
use crate::ids::{ParamId, Reg, Value};
use crate::ops::Op;
use crate::program::{Body, BodyInstr, Class, Instr, Program, Source, Transfer};

impl Printer<'_> {
    pub(super) fn program(&self, model: &Model, program: &Program) -> String {
        let head = format!("program @{} microbatches={} {{\n", program.name, program.microbatches);
        let bodies: String = program.bodies.values().map(|body| self.body(body)).collect();
        let classes: String = program.classes.iter().map(|class| self.class(model, program, class)).collect();
        head + &bodies + &classes + "}\n"
    }

    /// A body.
    pub fn body(&self, body: &Body) -> String {
        let (mut rows, mut others) = (Vec::new(), Vec::new());
        for arg in &body.args {
            let data = &body.values[arg.value];
            let word = SOURCES.iter().find(|(source, _)| *source == arg.source);
            let word = word.map_or(String::new(), |(_, word)| format!("{word} "));
            let text = format!("%{}: {word}{}", data.name, self.ty(&data.ty, &body.values));
            if arg.source == Source::Row { rows.push(text) } else { others.push(text) }
        }
        let args = join_args(rows, others);
        let mut tail = ")".to_string();
        if !body.results.is_empty() {
            tail += &format!(" -> ({})", print_values(&body.results, &body.values));
        }
        if !body.keeps.is_empty() {
            tail += &format!(" save ({})", print_values(&body.keeps, &body.values));
        }
        let head = wrap(&format!("  body @{}(", body.name), &args, &format!("{tail} {{"), "  ");
        let instrs: String = body.instrs.iter().map(|instr| self.body_instr(body, instr)).collect();
        let frame = body.frame.as_ref().map_or_else(String::new, |frame| print_frame(frame, body));
        format!("{head}\n{instrs}{frame}  }}\n")
    }

    fn body_instr(&self, body: &Body, instr: &BodyInstr) -> String {
        let values = &body.values;
        match instr {
            BodyInstr::Compute(stmt) => self.aligned(stmt, values, 0, "    "),
            BodyInstr::Fused(fused) => {
                let stmts: String = fused.stmts.iter().map(|stmt| self.aligned(stmt, values, 0, "      ")).collect();
                format!("    fused -> ({}) {{\n{stmts}    }}\n", print_values(&fused.outs, values))
            }
            BodyInstr::Start { token, collective, operands } => {
                let moved = self.application(&Op::Collective(collective.clone()), operands, values);
                format!("    %{token} = start {moved}\n")
            }
            BodyInstr::Wait { token, results } => {
                format!("    {} = wait %{token}\n", self.stated(results, values))
            }
            BodyInstr::Free(list) => format!("    free {}\n", print_values(list, values)),
        }
    }

    fn class(&self, model: &Model, program: &Program, class: &Class) -> String {
        let mut text = format!("  class {}..{} {{\n", class.ranks.start, class.ranks.end);
        if !class.params.is_empty() {
            text += &(wrap("    params ", &print_held(model, &class.params), "", "    ").trim_end().to_string() + "\n");
        }
        text += &class.arena.as_ref().map_or_else(String::new, |arena| print_arena(model, arena));
        for (index, instr) in class.instrs.iter().enumerate() {
            let places = class.arena.as_ref().and_then(|arena| arena.at.get(index)).filter(|at| !at.is_empty());
            let at = places.map_or_else(String::new, |at| format!(" at {}", numbers(at)));
            text += &format!("    {}{at}\n", self.instr(model, program, class, instr));
        }
        text + "  }\n"
    }

    fn instr(&self, model: &Model, program: &Program, class: &Class, instr: &Instr) -> String {
        match instr {
            Instr::Feed { out, input, microbatch } => {
                format!("{} = feed %{} microbatch={microbatch}", class.reg_name(*out), model.values[*input])
            }
            Instr::LossGrad { out, mean } => format!("{} = {}", class.reg_name(*out), mean.instruction()),
            Instr::Run { token, body, call, instance, microbatch, first, args, bundles, results, keep } => {
                let left = match (token, results.is_empty()) {
                    (None, true) => String::new(),
                    (None, false) => format!("{} = ", print_regs(class, results)),
                    (Some(token), true) => format!("%{token} = start "),
                    (Some(token), false) => format!("%{token}, {} = start ", print_regs(class, results)),
                };
                let microbatch = microbatch.map_or(String::new(), |number| format!(" microbatch={number}"));
                let first = if *first { " first" } else { "" };
                let mut operands = print_regs(class, args);
                if !bundles.is_empty() {
                    operands += &format!("; {}", print_regs(class, bundles));
                }
                let keep = keep.map_or(String::new(), |keep| format!(" save {}", class.reg_name(keep)));
                let name = &program.bodies[*body].name;
                format!("{left}run @{name} call={call} instance={instance}{microbatch}{first} ({operands}){keep}")
            }
            Instr::Start { token, transfer, operand } => {
                let operand = operand.map(|reg| class.reg_name(reg));
                format!("%{token} = start {}", self.transfer(model, program, transfer, operand))
            }
            Instr::Wait { token, result: Some(result) } => format!("{} = wait %{token}", class.reg_name(*result)),
            Instr::Wait { token, result: None } => format!("wait %{token}"),
            Instr::Add { into, from } => format!("{} += {}", class.reg_name(*into), class.reg_name(*from)),
            Instr::Out { name, reg } => format!("out {name} {}", class.reg_name(*reg)),
            Instr::Free(regs) => format!("free {}", print_regs(class, regs)),
        }
    }

    fn transfer(&self, model: &Model, program: &Program, transfer: &Transfer, operand: Option<String>) -> String {
        let operand = operand.unwrap_or_default();
        match transfer {
            Transfer::Send { peer, tag } => format!("send({operand}, peer={}, tag={tag})", peer.print(self.mesh)),
            Transfer::Recv { peer, tag, ty } => {
                let ty = self.ty(ty, &Default::default());
                format!("recv(peer={}, tag={tag}): {ty}", peer.print(self.mesh))
            }
            Transfer::Sum { ranks } => format!("sum({operand}, ranks=[{}])", numbers(ranks)),
            Transfer::SumGradient { param, instance, ranks } => {
                let name = print_instance(model, *param, *instance);
                format!("sum_gradient({name}, ranks=[{}])", numbers(ranks))
            }
            Transfer::ShareParam { param, instance, from, ranks } => {
                let name = print_instance(model, *param, *instance);
                format!("share_param({name}, from={from}, ranks=[{}])", numbers(ranks))
            }
            Transfer::Offload => format!("offload({operand})"),
            Transfer::Load => format!("load({operand})"),
            Transfer::LoadStates { body, call, instance } => {
                format!("load_states(@{}, call={call}, instance={instance})", program.bodies[*body].name)
            }
            Transfer::StoreStates { call, instance } => {
                format!("store_states({operand}, call={call}, instance={instance})")
            }
        }
    }
}

/// Registers, separated by commas.
fn print_regs(class: &Class, regs: &[Reg]) -> String {
    regs.iter().map(|&reg| class.reg_name(reg)).collect::<Vec<_>>().join(", ")
}

fn numbers<N: ToString>(list: &[N]) -> String {
    list.iter().map(N::to_string).collect::<Vec<_>>().join(", ")
}

fn print_frame(frame: &Frame, body: &Body) -> String {
    let places: Vec<String> = frame.places.iter().map(|(&value, &place)| print_place(body, value, place)).collect();
    let slots: String = frame.slots.iter().map(|bytes| format!("slot {bytes} ")).collect();
    let head = format!("    frame {slots}scratch {} ", frame.scratch);
    wrap(&head, &places, "", "    ").trim_end().to_string() + "\n"
}

fn print_place(body: &Body, value: Value, place: Place) -> String {
    let name = body.value_name(value);
    match place {
        Place::Row => format!("%{name} row"),
        Place::Slot(0, at) => format!("%{name} slot+{at}"),
        Place::Slot(slot, at) => format!("%{name} slot {slot}+{at}"),
        Place::Scratch(at) => format!("%{name} scratch+{at}"),
        Place::Same(other) => format!("%{name} = %{}", body.value_name(other)),
    }
}

fn print_arena(model: &Model, arena: &Arena) -> String {
    let held = arena.residents.iter().map(|held| {
        let name = print_instance(model, held.param, held.instance);
        let role = match &held.role {
            Role::Param => String::new(),
            Role::Gradient => " grad".to_string(),
            Role::State(suffix) => format!(" {suffix}"),
        };
        format!("{name}{role}{} {}", if held.host { " host" } else { "" }, held.at)
    });
    let mut items: Vec<String> = held.collect();
    if let (Some(last), false) = (items.last_mut(), arena.scalars.is_empty()) {
        *last += ";";
    }
    items.extend(arena.scalars.iter().map(|(name, at)| format!("{name} {at}")));
    let host = if arena.host > 0 { format!("host {} ", arena.host) } else { String::new() };
    wrap(&format!("    memory {} {host}", arena.bytes), &items, "", "    ").trim_end().to_string() + "\n"
}

fn print_instance(model: &Model, param: ParamId, instance: u32) -> String {
    let param = &model.params[param];
    print_param_name(param, param.count.map(|_| instance))
}

/// Parameter instances; all fields of an array's element in a row print as the element: `%layer[3]`.
fn print_held(model: &Model, params: &[(ParamId, u32)]) -> Vec<String> {
    let mut held = Vec::new();
    let mut rest = params;
    while let [(param, instance), after @ ..] = rest {
        let name = &model.params[*param].name;
        let fields = model.params.iter().filter(|(_, p)| p.name == *name && p.field.is_some());
        let element: Vec<(ParamId, u32)> = fields.map(|(id, _)| (id, *instance)).collect();
        if element.len() > 1 && rest.starts_with(&element) {
            held.push(format!("%{name}[{instance}]"));
            rest = &rest[element.len()..];
        } else {
            held.push(print_instance(model, *param, *instance));
            rest = after;
        }
    }
    held
}
