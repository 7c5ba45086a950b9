//! Number formats, optimizer and kernels that flags state, and the stack that predicts them.

use super::assumptions::{FUSED_BY_DEFAULT, FUSED_IF_STATED};
use super::reader::Reader;
use crate::flag_error::FlagError;
use crate::present::stated_stack;
use cost::{EnumSet, FusedKernel, Graphs, StackExpression};

/// The stack of jobs that name none.
const USUAL: &str = "megatron-core-2025";

impl Reader<'_> {
    pub(super) fn precision(&mut self) -> Result<String, FlagError> {
        let wide = match (self.has("bf16"), self.has("fp16")) {
            (true, true) => {
                return Err(FlagError::Combination("--bf16 and --fp16: Megatron-LM takes one of them".into()));
            }
            (true, false) => "bf16",
            (false, true) => "fp16",
            (false, false) => "f32",
        };
        if self.has("fp4-format") {
            return Ok("nvfp4".to_string());
        }
        let is_narrow = self.has("fp8-format");
        let recipe = match self.value("fp8-recipe")?.unwrap_or("delayed") {
            _ if !is_narrow => wide,
            "tensorwise" => "fp8-tensor",
            "delayed" => "fp8-delayed",
            "blockwise" => "fp8-block",
            "mxfp8" => "mxfp8",
            other => {
                return Err(FlagError::Value(format!(
                    "--fp8-recipe {other}: a recipe has one of tensorwise, delayed, blockwise, mxfp8"
                )));
            }
        };
        Ok(recipe.to_string())
    }

    pub(super) fn optimizer(&mut self) -> Result<String, FlagError> {
        let moments = [self.value("exp-avg-dtype")?, self.value("exp-avg-sq-dtype")?];
        self.has("use-precision-aware-optimizer");
        let is_narrow = moments == [Some("bf16"); 2];
        if !is_narrow && moments.iter().flatten().any(|&dtype| dtype != "fp32") {
            let told = moments.map(|dtype| dtype.unwrap_or("fp32")).join(" and ");
            self.warnings
                .push(format!("not modelled: moments in {told} touch optimizer states, which are predicted in f32"));
        }
        let momentum = self.value("sgd-momentum")?.is_none_or(|momentum| momentum.parse() != Ok(0.0));
        let optimizer = match self.value("optimizer")?.unwrap_or("adam") {
            "adam" if is_narrow => "adamw-bf16",
            "adam" => "adamw",
            "sgd" if momentum => "momentum",
            "sgd" => "sgd",
            other => return Err(FlagError::Value(format!("--optimizer {other}: predictions know adam and sgd"))),
        };
        Ok(optimizer.to_string())
    }

    /// The type of accumulated gradients: f32, unless flags say otherwise; that of the parameters under Megatron-FSDP.
    pub(super) fn gradients(&mut self, precision: &str) -> Result<Option<String>, FlagError> {
        let (is_narrow, is_wide) = (self.has("grad-reduce-in-bf16"), self.has("accumulate-allreduce-grads-in-fp32"));
        let of_fsdp = self.value("megatron-fsdp-main-grads-dtype")?;
        self.value("megatron-fsdp-grad-comm-dtype")?;
        if is_narrow && is_wide {
            let why = "--grad-reduce-in-bf16 and --accumulate-allreduce-grads-in-fp32: Megatron-LM takes one of them";
            return Err(FlagError::Combination(why.into()));
        }
        let is_fsdp = self.has("use-megatron-fsdp");
        let parameters = if precision == "fp16" { "fp16" } else { "bf16" };
        let dtype = match precision {
            "f32" => return Ok(None),
            _ if is_fsdp && of_fsdp != Some("fp32") => parameters,
            _ if is_fsdp => "f32",
            "fp16" if !is_wide => parameters,
            _ if is_narrow => "bf16",
            _ => "f32",
        };
        Ok(Some(dtype.to_string()))
    }

    /// The stack that predicts the job: the one that an export of this program names, or by how experts exchange their tokens.
    pub(super) fn stack(&mut self, text: &str) -> Result<Option<String>, FlagError> {
        let has_experts = self.number("num-experts")?.is_some_and(|experts| experts > 0);
        let dispatcher = self.value("moe-token-dispatcher-type")?.unwrap_or("allgather");
        let pads = self.has("moe-pad-expert-input-to-capacity");
        self.value("moe-expert-capacity-factor")?;
        self.value("moe-flex-dispatcher-backend")?;
        self.value("moe-router-dtype")?;
        self.has("moe-enable-deepep");
        let overlaps = self.has("overlap-moe-expert-parallel-comm");
        let is_grouped = self.has("moe-grouped-gemm");
        let graphs = self.value("cuda-graph-impl")?.filter(|kind| *kind != "none");
        for flag in ["cuda-graph-modules", "cuda-graph-scope"] {
            self.values(flag);
        }
        if let Some(stated) = stated_stack(text) {
            return Ok(Some(self.launching(stated, graphs)));
        }
        if !has_experts {
            return Ok(None);
        }
        if dispatcher == "allgather" {
            self.warnings.push(
                "not modelled: the dispatcher `allgather` touches ep: each rank receives the tokens of all".into(),
            );
        }
        if !is_grouped {
            self.warnings.push("not modelled: without --moe-grouped-gemm each expert is a product of its own".into());
        }
        let stack = match dispatcher {
            "flex" if overlaps => "megatron-core-2026",
            "flex" => "megatron-core-2025",
            _ if pads => "megatron-core-2025-drop",
            _ => "megatron-core-2025-alltoall",
        };
        Ok(Some(self.launching(stack, graphs)))
    }

    /// The stack, with graphs only if the flags have them. Those of dense layers are left to the stack.
    fn launching(&mut self, stack: &str, graphs: Option<&str>) -> String {
        let replayed = StackExpression::of(stack).preset().map_or(Graphs::None, |stack| stack.traits.launch.graphs);
        match (replayed, graphs) {
            (Graphs::All, None) => format!("{stack}+launch.graphs=none"),
            // Those that do not replay experts.
            (Graphs::None | Graphs::Dense, Some(kind))
                if replayed == Graphs::None || self.flags.contains_key("num-experts") =>
            {
                self.warnings.push(format!(
                    "not modelled: --cuda-graph-impl {kind} touches launches: replayed kernels need none"
                ));
                stack.to_string()
            }
            _ => stack.to_string(),
        }
    }

    /// Flags of kernels and dropout: those that differ from what stacks have are told.
    pub(super) fn kernels(&mut self, stack: Option<&str>) {
        for dropout in ["hidden-dropout", "attention-dropout"] {
            let share = self.values(dropout).and_then(|values| values.first()).map_or("0.1", String::as_str);
            if share.parse() != Ok(0.0) {
                self.warnings.push(format!(
                    "not modelled: --{dropout} {share} touches activations: masks are saved, and kernels draw numbers"
                ));
            }
        }
        if self.values("attention-backend").and_then(|values| values.first()).is_some_and(|kind| kind == "unfused") {
            self.warnings
                .push("not modelled: --attention-backend unfused touches attention: scores are in memory".into());
        }
        let stack = StackExpression::of(stack.unwrap_or(USUAL)).preset();
        let fused = stack.map_or_else(|_| EnumSet::default(), |stack| stack.traits.kernels.fused);
        // Megatron-LM itself turns the fused rotation off there.
        let is_latent = self.flags.contains_key("multi-latent-attention");
        for (group, flag) in FUSED_BY_DEFAULT {
            if self.has(flag) && fused.contains(group) && !(is_latent && group == FusedKernel::Rope) {
                self.warnings.push(format!("not modelled: --{flag} touches kernels: each op is one of its own"));
            }
        }
        let has_experts = self.flags.contains_key("num-experts");
        for (group, flag, is_of_experts) in FUSED_IF_STATED {
            if !self.has(flag) && fused.contains(group) && (has_experts || !is_of_experts) {
                self.warnings.push(format!("not modelled: without --{flag} each op is a kernel of its own"));
            }
        }
        self.values("cross-entropy-fusion-impl");
    }
}
