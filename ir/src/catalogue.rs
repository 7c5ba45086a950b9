//! The table of all diagnostics: number, name, title, explanation, example, help. A new diagnostic is a new row.
//!
//! 00xx text, 01xx types and ops, 02xx shardings and meshes, 03xx model configurations, 04xx planning, 05xx schedules,
//! 06xx programs, 07xx data and training, 08xx the command line.

mod entry;
mod text;

pub use entry::Entry;

macro_rules! catalogue {
    ($($number:literal $name:ident $title:literal: $explanation:literal; $example:literal; $help:literal;)*) => {
        /// The code of a diagnostic: `MW0209`.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Code { $(#[doc = concat!("`MW", stringify!($number), "`: ", $title, ".")] $name),* }

        /// All codes, by number.
        pub const CATALOGUE: &[Entry] = &[$(Entry {
            code: Code::$name,
            number: $number,
            title: $title,
            explanation: $explanation,
            example: $example,
            help: $help,
        }),*];
    };
}

catalogue! {
    1 UnexpectedCharacter "unexpected character":
        "No token of the language begins with this character. Names begin with a letter; values with `%`, blocks with `@`, coordinates with `$`.";
        "%y: f32[b] = silu(%x) # the activation";
        "Remove the character; a comment begins with `//`.";
    2 UnexpectedToken "unexpected token":
        "The text does not follow the grammar here. The message names the tokens that are allowed and the one that was found.";
        "%y: f32[b] silu(%x)";
        "Write one of the expected tokens.";
    3 BadNumber "number out of range":
        "Sizes and counts are integers of at least 1 that fit in 64 bits; indices and micro-batches fit in 32.";
        "dims [b=8, h=0]";
        "Write an integer in the range.";
    4 UnterminatedString "unterminated string":
        "A string must be closed with `\"` on the line that opens it.";
        "%y: f32[b, f] = einsum(%x, %w, eq=\"b h, h f -> b f)";
        "Close the string on its line.";
    5 UnknownItem "unknown item":
        "A file consists of the items mesh, dims, param, unit, model, block, step, staged, schedule and program. Each item begins on a new line with its keyword.";
        "blok @same(%x: f32[b]) -> f32[b] { return %x }";
        "Correct the keyword of the item.";
    6 UndefinedValue "undefined value":
        "A statement reads a value that no argument and no earlier statement defines. Each value is defined once, before its first use. A section may read the values of earlier sections of its block.";
        "%y: f32[b] = silu(%z)";
        "Define the value first, or correct its name.";
    7 Redefinition "duplicate definition":
        "Each value, dim, parameter and block is defined once. Only a `U` section may store into a parameter or state, once each.";
        "%y: f32[b] = silu(%x)\n%y: f32[b] = neg(%y)";
        "Rename the second definition.";
    8 UnknownBlock "unknown block or body":
        "A call names a block that the file does not define, or a schedule row names a body that the program does not define.";
        "%y = call @layr(%x)";
        "Correct the name, or add the block.";
    9 UnknownDim "unknown dim":
        "A type names a dim that is not in the `dims` table.";
        "block @same(%x: f32[b, q]) -> f32[b, q] {";
        "Add it to `dims`, or write its size as a number.";
    10 UnknownType "unknown element type":
        "The element types are f32, bf16, f16, f8e4m3, f8e5m2 and i32.";
        "block @same(%x: float[b]) -> float[b] {";
        "Use one of the element types.";
    11 WrongBound "wrong local bound":
        "`<=` states the largest number of elements on any rank. The size and the axes determine it, by nested ceilings, and the stated bound must equal that number.";
        "mesh @m = [tp=2]\nblock @same(%x: f32[40<=10{tp}]) -> f32[40<=10{tp}] {";
        "Write the correct bound, or omit it.";
    12 DuplicateItem "duplicate item":
        "A file has at most one mesh, dims, model, step, staged, schedule and program.";
        "dims [b=8]\ndims [s=4]";
        "Merge the two items.";
    13 UnknownParam "unknown parameter":
        "A call passes a parameter that no `param` line declares.";
        "call @head(%x; %heed)";
        "Correct the name, or declare the parameter.";
    14 MisplacedArgument "argument on the wrong side of `;`":
        "Values and inputs come before the `;`; constants, parameters and states come after it.";
        "block @same(%x: f32[b], %w: param f32[h]) -> f32[b] {";
        "Move the argument to the other side of the `;`.";
    15 BadAction "invalid schedule action":
        "An action is a stage, a letter, a micro-batch and optionally a slice: `2F3`, `2F3:1`. The letters are F, I, W, B, G, D, R, N, U, O and L.";
        "rank 0: 0F0 0X0 R N U";
        "Use one of the letters of actions.";
    16 BadBody "invalid body or instruction":
        "A body is named after its block and section, such as `layer.F`. Only transfers can be started, and only receives return tensors.";
        "body @layer.Q(%x: f32[b]) {";
        "Name the body after its block and section; start only transfers; take results only from receives.";
    17 LongExpression "rank expression too long":
        "A rank expression has at most 64 operators and parentheses. The rank of a peer takes two or three.";
        "%y: f32[1] = slice(%x, dim=0, start=1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1, length=1)";
        "Shorten the expression.";
    18 UnknownRole "unknown role of a dim":
        "The word behind the size of a dim is none of the roles. Passes ask for the role of a dim, never for its name; `no_role` is the word for none.";
        "dims [samples=8 bach, h=16]";
        "Correct the word, or leave it out.";
    19 RoleTwice "role stated twice":
        "A dim has at most one role. A model has one dim with the role `batch` and one with the role `sequence`; `b` and `s` have these roles if they state no other.";
        "dims [b=8, samples=4 batch]";
        "Remove one of the roles; write `no_role` behind the size of a dim whose name implies one.";
    101 UnknownOp "unknown op":
        "No op has this name. Every contraction is an `einsum` with an equation.";
        "%y: f32[b, f] = einsun(%x, %w, eq=\"b h, h f -> b f\")";
        "Use an existing op; write contractions as einsum.";
    102 BadAttribute "missing or ill-typed attribute":
        "A required attribute of the op is missing, or its value has the wrong type.";
        "%y: f32[b] = scale(%x)";
        "Give the op all required attributes, each with a value of its type.";
    103 UnknownAttribute "unknown attribute":
        "The op, parameter or stage does not have this attribute. The help lists the valid attributes.";
        "%y: f32[b] = silu(%x, by=2)";
        "Remove the attribute, or correct its name.";
    104 OperandMismatch "operand mismatch":
        "The op does not accept operands of these shapes or element types. Broadcasts and casts are never implicit.";
        "block @up(%x: f32[b, h]; %w: param f32[f, h]) -> f32[b, f] {\n  %y: f32[b, f] = einsum(%x, %w, eq=\"b h, h f -> b f\")";
        "Make the sizes and types agree; insert a broadcast or cast if one is intended.";
    105 ResultType "wrong result type":
        "The operands determine the type of a result. The stated type has another element type or other sizes.";
        "%y: f32[b] = cast(%x, to=bf16)";
        "Write the type that the operands give.";
    106 ResultCount "wrong number of results":
        "The statement does not name one value for each result of the op.";
        "%y: f32[b, h] = rms_norm(%x, %g, eps=1e-5)";
        "Name one value for each result.";
    107 OperandCount "wrong number of operands":
        "The op does not accept this number of operands.";
        "%y: f32[b] = silu()";
        "Pass the operands that the op takes.";
    108 UseBeforeDefinition "use before definition":
        "A statement or call reads a value that is defined further down, or in a later section. Sections run in the order F, I, W, U. The parser reports such a value as undefined, so only a model that is built in memory can have this error.";
        "block[SectionKind::F].stmts.swap(0, 1);";
        "Move the definition before its first use.";
    109 CallMismatch "call does not match its block":
        "The arguments of a call differ from those of the block in number, kind or type, or the number of results differs. The first arguments of a repeated block are its results.";
        "call @head(%y, %x)";
        "Pass the arguments that the block's head declares, in its order.";
    110 ReturnMismatch "wrong return":
        "The kind of a section determines its return: F returns the block's results, I one cotangent per float argument in order, U one f32 scalar for the step graph, W nothing.";
        "block @same(%x: f32[b]) -> f32[h] {\n  return %x";
        "Return one value for each required type, in order.";
    111 SectionShape "malformed section":
        "I takes one cotangent per float result, of the result's type. W consists of `+=` statements whose results are gradients. G reads parameters alone, and F, I and W read its values.";
        "block @act(%x: f32[b, h]) -> f32[b, h] {\nI(%y.d: f32[b]):";
        "Give the section the arguments and statements of its kind.";
    112 BadAccumulation "invalid accumulation":
        "`+=` is allowed only in W. Its result is the gradient of a parameter, `%w.grad`, in f32 with the parameter's sizes. Each gradient has exactly one `+=`.";
        "%w.gradient: f32[h] += reduce_sum(%y.d, eq=\"b h -> h\")";
        "Name the result `%w.grad` after its parameter, and accumulate once, in W; add the contributions first.";
    113 BadRepeat "invalid repeat range":
        "The range of a repeat must not be empty, and it must be within the bounds of the parameter arrays that it indexes.";
        "param %layer[2].w: f32[h, h] init=normal(0.02)\n%y = repeat i in 0..3 @layer(%x; %layer[i])";
        "Shorten the range, or declare longer arrays.";
    114 TooLarge "size too large":
        "A tensor has at most 2^48 elements, a mesh 2^20 devices, a parameter array 1024 elements, a model runs at most 1024 blocks, and a text has at most 2^25 tokens. Larger values overflow size computations.";
        "meshwright compile tiny-llama --seq 18446744073709551615";
        "Reduce the size; check it for an extra digit.";
    115 NoGradient "model cannot be differentiated":
        "Training derives the sections I, W and U of a block from its F. An op between the arguments and the loss has no gradient, a name that the derived sections need is taken, or the block already has one of these sections.";
        "%l: f32[] = sum_squares(%x)";
        "Use an op that has a gradient, or rename the value, as the message says.";
    201 UnknownAxis "unknown mesh axis":
        "Every name in braces and after `$` must be an axis or group of the `mesh` line.";
        "block @same(%x: f32[b{dpp}]) -> f32[b{dpp}] {";
        "Correct the name, or add the axis to the mesh.";
    202 AxisTwice "axis used twice in one type":
        "A type uses an axis at most once: to shard a dim, to flat-shard the tensor, or as an axis that it is partial over.";
        "block @same(%x: f32[b{tp}, h{tp}]) -> f32[b{tp}, h{tp}] {";
        "Remove the axis from one of the places.";
    203 StorageOverlap "flat-shard axis already shards a dim":
        "The flat-shard axes `/{..}` split the local tensor that remains after its dims are sharded, so they must differ from the axes of the dims.";
        "block @same(%x: f32[b]; %w: param f32[h{dp}, f]/{dp}) -> f32[b] {";
        "Use the axis either on the dim or in `/{..}`.";
    204 UnevenIndivisible "axis product does not divide an indivisible dim":
        "Heads and experts are not split: the size of a dim marked `indivisible` must be a multiple of the product of its axes. All other dims may have uneven shards.";
        "meshwright compile tiny-llama --parallel tp=3";
        "Choose a degree that divides the dim.";
    205 AxesAboveDim "more shards than elements":
        "The product of the axes on a dim exceeds its size, so some devices would have an empty shard.";
        "mesh @m = [tp=8]\nblock @same(%x: f32[4{tp}]) -> f32[4{tp}] {";
        "Use fewer axes on this dim, or smaller ones.";
    206 PipelineOnDim "pipeline axis on a tensor":
        "Axis `pp` partitions the layers into stages and cannot shard a tensor.";
        "block @same(%x: f32[b{pp}]) -> f32[b{pp}] {";
        "Use another axis, or none.";
    207 CountedSharded "dynamic dim cannot be sharded":
        "A dynamic dim, whose size is known only at run time, cannot be sharded, gathered or merged.";
        "block @same(%n: i32[], %x: f32[64<=64(%n){tp}]) -> f32[64<=64(%n){tp}] {";
        "Shard another dim.";
    208 RuleViolated "sharding violates the op's rule":
        "The sharding rule of the op assigns a factor to each dim: dims with the same factor need the same axes, and some factors need replication. The types of the statement violate the rule.";
        "block @up(%x: f32[b, h]; %w: param f32[h, f{tp}]) -> f32[b, f] {\n%y: f32[b, f] = einsum(%x, %w, eq=\"b h, h f -> b f\")";
        "Shard the tensors as the rule requires, or insert a collective or a reshard before the op.";
    209 PendingSum "operand is an unreduced partial sum":
        "Only linear ops accept a partial operand, and their results are partial over the same axes.";
        "%p: f32[b, h]+{tp} = einsum(%x, %w, eq=\"b f, f h -> b h\")\n%y: f32[b, h] = silu(%p)";
        "Reduce the operand first, with all_reduce or reduce_scatter, or state that the result is partial.";
    210 BadCollective "invalid collective":
        "A collective removes axes from the minor end of a dim, or adds axes there, and reduces only over axes that its operand is partial over. A permute preserves the number of shards of each dim. The operand determines the type of the result.";
                "%1: f32[b{dp}, h] = all_slice(%y.d, dim=1, over={dp})";
        "Name a dim and axes that the operand has, and state the type that the collective gives.";
    211 NoDimOfRole "no dim has the role that an axis shards":
        "An annotation rule such as `tp: kv_heads, feed_forward, vocabulary` assigns an axis to the dims of these roles. Sharding propagation starts from these annotations.";
        "meshwright compile model.ir --parallel dp=2\ndims [n=8, c=16]";
        "State the role of the dim behind its size, `n=8 batch`, or use its conventional name, here `b`.";
    212 BadMesh "invalid mesh":
        "Axis and group names must be distinct, an axis has at least one device, and a group at least one axis.";
        "mesh @m = [dp=2, dp=4]";
        "Rename the axis, or give it a size of at least one.";
    213 BadStorage "op cannot use a flat shard":
        "Only pointwise ops, whose tensors all have the same shape, accept flat shards `/{..}`. All their tensors must then have the same flat-shard axes.";
        "block @up(%x: f32[b, h]; %w: param f32[h, f]/{dp}) -> f32[b, f] {\n%y: f32[b, f] = einsum(%x, %w, eq=\"b h, h f -> b f\")";
        "Gather the flat-sharded tensor first: all_gather(.., over={..}) without `dim`.";
    214 BoundaryLayout "sharding mismatch at a call":
        "The sharding of each argument must equal the one that the block's head declares.";
        "model @m(%x: input f32[b{dp}, h]) {\n%x: input f32[b, h{dp}]; %clip: const f32[], %lr: const f32[], %step: const f32[], %w: param f32[h, h],";
        "Use the same sharding at the call and in the block's head.";
    301 ConfigMissingField "missing config field":
        "A model's config.json lacks a field that has no default: the family, or a field that the stated type of rotary embedding requires.";
        "{\"hidden_size\": 64, \"num_hidden_layers\": 2}";
        "Add the field.";
    302 ConfigContradiction "contradictory config fields":
        "Two sizes are incompatible, such as a hidden size that the number of heads does not divide, or a sequence longer than the position table.";
        "{\"model_type\": \"gpt2\", \"n_embd\": 60, \"n_head\": 8, \"n_layer\": 2, \"n_positions\": 64, \"vocab_size\": 257,";
        "Change one of the fields to agree with the other.";
    303 UnsupportedFamily "unsupported model family":
        "No builder exists for this `model_type`.";
        "{\"model_type\": \"xlstm\"}";
        "Use a supported family, or write the model as a .ir file.";
    304 UnsupportedOption "unsupported model option":
        "The family is supported, but the config requests a variant that the builder lacks, or has a key that only another family reads or that resembles a known key. Such keys are never ignored silently. docs/config-keys.md lists all keys.";
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"hidden_act\": \"mish\"}";
        "Remove the key, or give it a supported value if the model permits it.";
    305 ConfigSyntax "unreadable config":
        "The file is not a JSON object, or a field has the wrong type.";
        "{\"model_type\": \"llama\", \"vocab_size\": 257, \"hidden_size\": \"big\"}";
        "Pass a config.json in the format that `transformers` writes.";
    306 UnknownModel "unknown model":
        "The name is not a preset, a file, or a folder with a config.json.";
        "meshwright train tiny-lama";
        "Correct the name or the path; meshwright models lists the presets.";
    307 ExportDamaged "unreadable export":
        "A .pt2 file must be an archive that torch.export.save wrote: a zip of stored files, with a graph of schema 8 and the raw elements of its tensors.";
        "meshwright plan notes.pt2 --cluster h100 --gpus 8 --seq 128 --global-batch 8";
        "Export again with torch.export.save of a current PyTorch.";
    308 ExportUnsupported "unsupported part of an export":
        "The graph of an export must be a decoder that the language can express: token ids in, logits out, and numbered layers of attention and a feed-forward net between them. The message names the first node that is none of this, with its op, module and source line.";
        "let export = Export::open(&folder.path().join(\"fourier.pt2\"));";
        "Export a decoder in evaluation mode and without a cache, as the chapter \"Your model\" says, or write the model as a .ir file.";
    401 ImpossibleLayout "parallel degrees do not match the devices":
        "dp x tp x pp x cp must equal the number of devices. ep x etp, and the size of a ZeRO group, must divide the number of devices of a pipeline stage.";
        "meshwright estimate tiny-llama --cluster h100 --gpus 8 --seq 128 --global-batch 8 --parallel tp=3";
        "Choose degrees whose product is the number of devices, or leave out dp to have it derived.";
    402 ImpossibleDegrees "incompatible parallel degrees":
        "A mesh on links of several levels (devices of a node, nodes of a rack) fills each level with complete axes: an axis may span levels, but it cannot end inside one. Experts use parts of tp, cp and dp, the innermost ranks first: etp ranks share an expert, ep groups hold different experts, and each part divides the rest of its axis.";
        "let parallel = ParallelConfig { dp: 2, tp: 6, ..ParallelConfig::default() };\nlet options = PlanOptions { levels: vec![4], ..PlanOptions::of(parallel) };";
        "Choose degrees that fill complete levels of the network; let ep x etp divide dp x cp x tp.";
    403 BatchDoesNotDivide "indivisible batch":
        "The global batch equals data-parallel degree x micro-batch size x number of micro-batches, all integers.";
        "meshwright compile tiny-llama --parallel dp=2,mbs=3 --global-batch 8";
        "Change the global batch or the micro-batch size.";
    404 NoLayout "no valid configuration":
        "A configuration uses all devices: dp x tp x cp x pp equals their number. tp divides the heads, ep the experts, and dp x micro-batch the global batch. A pipeline has at most one stage per layer. Every --pin must hold too.";
        "meshwright plan tiny-llama --cluster h100 --gpus 7 --seq 128 --global-batch 8 --pin cp=1";
        "Change --gpus (or give --max-gpus), the global batch, or the pins.";
    405 TooManyStages "more stages than block instances":
        "Every stage needs at least one block instance.";
        "meshwright compile tiny-llama --parallel pp=64";
        "Use fewer stages.";
    406 EmptyModel "empty model":
        "The calls in the item `model` are partitioned into pipeline stages. The file has no such item: it is empty, or contains only blocks.";
        "meshwright compile model.ir";
        "Add an item `model` that calls the blocks in order.";
    407 NothingFits "no configuration fits in memory":
        "Every configuration that the pins allow exceeds device memory on some rank. The answer lists the conflict between constraints, and changes that make the request feasible.";
        "meshwright plan llama3-70b --cluster h100 --gpus 1 --seq 4096 --global-batch 8 --pin mbs=1";
        "Use more devices, remove pins, or reduce the batch or sequence.";
    408 NotFinished "search stopped without an answer":
        "The deadline passed before the search found a configuration that fits or proved that none exists. The message names the evaluated configuration that needs the least memory, if any.";
        "meshwright plan llama3-8b --gpus 1 --max-gpus 1000 --seq 8192 --global-batch 1024 --deadline 1e-9 --format ir";
        "Use a longer deadline, or none; pins narrow the search.";
    409 BeyondStack "pin not supported by the stack":
        "The table `supports` of a stack file lists the features of the framework: degrees, pipeline schedules, recomputable modules, ZeRO stages and others. A plan uses only these features, so that the framework can run it; the pin requires another one.";
        "meshwright plan tiny-llama --cluster h100 --gpus 8 --seq 128 --global-batch 8 --pin schedule=zb-v";
        "Pin a supported feature, choose a stack that supports it, or add --beyond-stack to ignore the limits of the stack.";
    410 NoRoom "no sharding fits in the memory budget":
        "With --shard auto the planner chooses shardings for which parameters, gradients, optimizer state and saved activations fit in device memory. Every sharding over these axes exceeds it.";
        "meshwright compile tiny-llama --parallel dp=2 --shard auto --memory 1MB";
        "Use more devices, smaller micro-batches, or devices with more memory.";
    411 Cancelled "request cancelled":
        "A program that uses the library cancelled the request through its token. A cancelled search has no answer, not even a partial one. A cancelled training run has saved a checkpoint.";
        "let request = meshwright::plan(\"tiny-llama\").on(\"h100\", 8).batch(8, 128).cancel(&cancelled());";
        "Start the request again, or resume the run. A search with a deadline returns the best answer found by then.";
    501 Deadlock "deadlock between ranks":
        "The ranks reach a state in which none can proceed: each waits for a later action of another.";
        "rank 0: 0B0 0F0 R N U";
        "Move the awaited action earlier.";
    502 MissingAction "missing or duplicate action":
        "Each stage runs F and B, or F, I and W, exactly once for each micro-batch, on its own rank.";
        "rank 0: 0F0 0F0 0B0 R N U";
        "Add or remove the action, or move it to the rank of its stage.";
    503 UnknownSchedule "unknown schedule":
        "`meshwright schedules` lists the schedules.";
        "meshwright schedule --stages 2 --microbatches 4 --kind 2f2b";
        "Correct the name; meshwright schedules lists the schedules.";
    504 UnsuitedSchedule "schedule does not support these counts":
        "Stages, micro-batches and chunks must be at least 1, and at most 1,000,000 actions in total. The schedule may restrict these counts further.";
        "meshwright schedule --stages 0 --microbatches 4 --kind gpipe";
        "Change the counts as the message says.";
    505 OrderViolated "action before its dependencies":
        "F of a stage needs F of the previous stage. I needs F, and I of the next stage. W needs I, R needs all W, N needs all R, and U needs N. R, N and U end the schedule of a rank.";
        "rank 0: 0F0 0B0";
        "Order each rank: F before I before W, then R, N and U at the end.";
    506 MemoryLimit "schedule exceeds the memory limit":
        "A rank would have more saved activations at a time than the limit allows. The schedule is still drawn; the exit status is 4.";
        "meshwright schedule --stages 2 --microbatches 4 --kind gpipe --memory-limit 2";
        "Choose a schedule with fewer saved activations, or raise the limit.";
    507 BadCosts "invalid schedule costs":
        "Times and memory are finite and not negative. A list has one number per stage, a limit one per rank. I and W together free exactly the memory that F takes.";
        "{\"f\": [1, 2]}";
        "Give one number for all stages, or one per stage, each from 0 to 1e200.";
    508 BadStages "stages do not cover the model":
        "The stages list the calls of the model in order, each instance once, on the ranks of the mesh axis `pp`.";
        "stage 0 rank 0: @layer[0..2]";
        "Omit the item `staged`, or list all calls in order.";
    509 TooManyActions "too many actions":
        "The number of actions, block instances x micro-batches, is at most 2^16 over all ranks.";
        "meshwright compile tiny-llama --global-batch 1000000";
        "Use larger micro-batches (--mbs) or a smaller global batch.";
    512 ForeignSchedule "unreadable schedule file":
        "`--from` and `--compare` read CSV as torch.distributed.pipelining dumps it, with one line per rank and one cell per action, and the JSON of `schedule --format json`; `--compare` reads Chrome traces too. Each message needs a sender and a receiver, in the same order on both ranks.";
        "1F0,1G0";
        "Correct the cell that the message names.";
    601 ProgramInvalid "program violates an invariant":
        "The program checker executes all ranks symbolically: registers, messages, saved tensors and collectives must match, and every part of the model must be computed once. If meshwright generated this program, report a bug.";
        "run @only.I call=0 instance=0 microbatch=1 (%only.l.d:1; %only.F:1) save %only.I:1\nfree %only.l.d:1, %only.F:1\nfree %only.I:1";
        "Correct the program, or omit it to regenerate it.";
    603 NotPlanned "model not planned":
        "Code generation needs a differentiated model with closed shardings and explicit collectives.";
        "codegen::lower(&model, &staged, &schedule, 1, &PROGRAM).unwrap_err().code()";
        "Compile the model from level 1.";
    604 NoProgram "no program for this model":
        "The sections of the blocks do not match: a cotangent has another type, a value has no derivative, two blocks update one parameter, or a constant has no source.";
        "block @head(%x: f32[b, h]; %by: const f32[]) -> loss f32[] {";
        "Correct the block that the message names.";
    701 DataMissing "data not found":
        "The path given with --data does not exist, cannot be read, or is a device.";
        "meshwright train tiny-llama --data no/such/folder";
        "Correct the path or its permissions.";
    702 DataEmpty "empty data":
        "The path exists, but it contains no text file. Empty and binary files are skipped.";
        "meshwright train tiny-llama --data text.txt";
        "Pass a file or folder with UTF-8 text.";
    703 DataTooSmall "data shorter than one sequence":
        "The tokens of the training part or of the held-out part do not fill one sequence and the token after it.";
        "so little to read";
        "Add text, use a shorter sequence, or change the held-out fraction.";
    704 PrecisionRefused "unsupported precision":
        "This command does not support the precision. It stops instead of silently computing in another precision.";
        "meshwright train tiny-llama --precision f64";
        "Train with --precision f32, bf16, f16, fp8-block, fp8-tensor or fp8-delayed. A .ir file states its own types: leave --precision out, or change them.";
    705 CheckpointMismatch "checkpoint does not match the run":
        "A run resumes from a checkpoint with the same model, text, held-out fraction, sequence length, global batch, optimizer and seed. The parallel configuration, the precision, the number of steps, learning rate, clipping and output options may change.";
        "meshwright train tiny-gpt2 --data text --valid-fraction 0.3 --seq 16 --seed 1 --resume";
        "Use the options of the run, as `--resume` alone does, or start over with another --out.";
    706 NotFinite "non-finite loss":
        "The loss or the gradient norm became NaN or infinite, more often than --skip-nonfinite allows. A norm that is not finite leaves parameters and optimizer states unchanged.";
        "let request = TrainRequest { lr: 1e30, optimizer: \"sgd\".into(), clip: 0.0, warmup: 0, ..request };";
        "Lower the learning rate, lengthen the warm-up or clip the gradient norm. If such steps are few, allow some with --skip-nonfinite.";
    707 RankFailed "rank failed":
        "One rank stopped with an error or stayed at one instruction, or its process ended or fell silent, and the others were aborted. The message names the first rank that failed.";
        "ranks[1].fail(\"out of memory\".into());";
        "See the cause next to the rank; the run can be restarted.";
    708 NotATextModel "model does not read text":
        "Training feeds token ids `%tok`, labels `%lab`, positions `%pos` and segments `%seg`, each i32[b, s], with ids below 257: the bytes and an end-of-document token. A model with other inputs or a smaller vocabulary cannot be trained on text.";
        "{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_head\": 2, \"n_layer\": 1, \"n_positions\": 128, \"vocab_size\": 100,";
        "Use those inputs, and a vocabulary of at least 257.";
    709 InputMismatch "input does not match the program":
        "A step takes one set of inputs per micro-batch, each with the number of elements of its type.";
        "let input = StepInput { microbatches: Vec::new(), valid_tokens: 1, loss_scale: 1.0, lr: 0.1, step: 1, update: 1 };";
        "Pass the inputs that the program declares; the state of the executor is unchanged.";
    710 TooLittleMemory "not enough memory for the run":
        "All devices are threads of one process and share its memory: parameters, gradients, optimizer state and activations of all ranks, and the text. The limit is the free memory of the machine or the limit of the process (ulimit, cgroups). Other commands report this error when an allocation fails.";
        "TrainRequest { model: \"llama2-7b\".into(), parallel: \"dp=512\".into(), global_batch: 512, ..training() };";
        "Use a smaller model, sequence or micro-batch, or fewer data-parallel ranks.";
    711 TokensDamaged "damaged token file":
        "A tokenised data set is not as its own records say: a file is shorter than its index, an index does not ascend, a header is that of another format, or a file has become shorter while a run reads it. Such a run saves its last step and ends with status 6.";
        "let cut = &index[..index.len() - 8]; // an index that ends early";
        "Write the files again, or copy them from where they are complete.";
    712 TokenOutOfRange "token outside of the vocabulary":
        "An id of the data is not below the vocabulary of the model, so no row of the embedding belongs to it. The message names the document.";
        "let ids = [1, 2, 60_000]; // of a vocabulary of 512";
        "Train with the model of the tokenizer that wrote the data, or tokenise the text again.";
    713 DocumentUnreadable "document is no text":
        "A line is not a JSON object with a text under the key that `--text-key` names, a file is not UTF-8, or the tokenizer refuses a text. A line above 128 MiB and a stretch of 4 MiB in which no word surely ends are refused too: memory is bounded. The message names file and line. No file is written.";
        "{\"body\": \"a text under another key\"}";
        "Correct or split the line, name the key with --text-key, or leave the file out.";
    714 TokenizerUnreadable "unreadable tokenizer":
        "The file is not a `tokenizer.json` as the library `tokenizers` writes it, or is of a kind that this version does not know.";
        "{\"model\": {\"type\": \"SentencePiece\"}}";
        "Name the tokenizer.json of a model, or the folder that has it.";
    715 ReplicasDiffer "replicas differ":
        "Ranks that hold the same part of a parameter or of an optimizer state must have the same bytes in it. `--check-replicas` has found a part that differs. The message names the tensor, the ranks that differ from most, and their hosts.";
        "let request = TrainRequest { check_replicas: 1, inject: Some(\"flip=1:1\".into()), ..two };";
        "Suspect the memory of the host that the message names, and resume from a checkpoint that was saved before the last check without a difference.";
    716 ProcessesDiffer "processes were started differently":
        "All processes of a run have the same program, the same options and the same data, weights and checkpoint. Before the first step they compare these, and the message names the first that differ with both values. Paths may differ from host to host; `--compare-data` compares all of the data.";
        "RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 meshwright train tiny-llama --parallel dp=2 --comm tcp --lr 1e-3";
        "Start all processes with the same program, options and files.";
    720 CheckpointMissing "checkpoint not found":
        "The path given with --resume is neither a checkpoint nor the folder of a run with a checkpoint. A run writes checkpoints only with --save-every.";
        "meshwright train tiny-gpt2 --data text --valid-fraction 0.3 --seq 16 --resume";
        "Correct the path, or omit --resume to start at the first step.";
    721 CheckpointDamaged "damaged checkpoint":
        "A file of the checkpoint does not have the recorded size or checksum: it was truncated, changed or removed after it was written. A checkpoint is never loaded in part.";
        "\"files\": [{\"name\": \"data-0000.safetensors\", \"bytes\": 11, \"crc32\": \"f2ae1109\"}],";
        "Resume from the older checkpoint that the message names.";
    722 CheckpointVersion "unknown checkpoint format":
        "The manifest names a format that this version cannot read; another version of meshwright wrote it.";
        "\"schema\": \"meshwright.checkpoint/2\",";
        "Resume with the version that wrote it.";
    723 CheckpointUnwritable "checkpoint cannot be written":
        "The operating system refused the write, usually because the disk is full. Earlier checkpoints are unchanged.";
        "let run = Path::new(\"/dev/null/run\");";
        "Free disk space, or retain fewer checkpoints (--keep-last); --resume continues from the last one.";
    724 RunHasCheckpoints "folder already has checkpoints":
        "The folder contains checkpoints of an earlier run. With two runs in one folder, --resume could not tell them apart.";
        "meshwright train tiny-gpt2 --data text --valid-fraction 0.3 --seq 16";
        "Continue with --resume, choose another --out, or remove the old checkpoints.";
    725 RunInUse "folder in use by another run":
        "Two concurrent runs in one folder would overwrite each other's records and checkpoints. A run locks the file `run.lock` in its folder until it ends. The operating system releases the lock of a process that has ended.";
        "let code = train(&request, &mut Quiet).unwrap_err().code(); // the file is locked";
        "Wait until the other run has ended, or choose another --out.";
    726 RunEnded "run ended by a signal":
        "SIGINT (Ctrl-C), SIGTERM or SIGHUP asked the run to end. The run finished the current step and saved a checkpoint; the exit status is 128 and the signal's number. A second signal ends the process at once.";
        "let code = train(&request, &mut Ending).unwrap_err().code(); // asked to end behind the first step";
        "Continue with --resume, as the message says.";
    730 NoGpu "no usable GPU":
        "The cuda backend needs an NVIDIA GPU with its driver, and NVRTC and cuBLASLt of the CUDA 13 toolkit. The backend loads them at their first use, under the names that the message lists, from the search path of the system loader.";
        "Device::open(usize::MAX).map(drop).unwrap_err().code()";
        "Install what the message names, or use --backend cpu.";
    740 WeightsMissing "weights not found":
        "The folder of `--init-from` has a config.json and either model.safetensors or model.safetensors.index.json with the files that it names, as `save_pretrained` of transformers writes them.";
        "meshwright train weights --data text --init-from weights";
        "Pass the folder of the model. A quantised or adapted model must be saved as a plain one first.";
    741 PickledWeights "weights are a pickle":
        "Files such as pytorch_model.bin are Python pickles: reading one runs the code in it. Only safetensors are read.";
        "meshwright train pickled --data text --init-from pickled";
        "Convert the folder once, in Python, as the message says.";
    742 WeightsDamaged "damaged weights":
        "A file of weights is not a complete safetensors file, or the index and the files contradict each other. Nothing of it was loaded.";
        "meshwright train broken --data text --init-from broken";
        "Copy or download the file again.";
    743 WeightsMismatch "weights do not match the model":
        "The tensors of the folder must be those of the model that its config.json describes, or the parameters of a `.ir` model, by name and by shape, with none missing and none to spare. The message names each.";
        "let tensors = [(\"transformer.wte.weight\", \"F32\", vec![300, 16])]; // and no others";
        "Use the config.json that belongs to the weights. A vocabulary that is padded is padded in both.";
    744 WeightsFormat "weights in an unsupported format":
        "Weights are read in f32, f16 and bf16. Integers, 8-bit floats and blocks with scales are of quantised models, which have other numbers than the ones that were trained.";
        "let quantised = (\"transformer.wte.weight\", \"F8_E4M3\", vec![300, 16]);";
        "Load the model in transformers with `dtype=torch.bfloat16`, save it, and pass that folder.";
    745 WeightsConfig "weights of another model":
        "The config.json next to the weights describes other computations than the model that is trained. With these weights the model would compute other numbers than the ones it was trained for.";
        "meshwright train tiny-llama --data text --init-from other";
        "Train the folder itself: give it as the model too.";
    746 NotExportable "model without a class in transformers":
        "Weights are exported under the names of a class of transformers, with its config.json; those of a `.ir` model under the names of its parameters. Some options of a config.json are additions of this program, which no class has.";
        "meshwright export-weights out --out exported";
        "Export a model that was trained from a config.json or a preset, without options that are marked as additions in docs/config-keys.md.";
    750 LostInExport "framework cannot state the configuration":
        "Each training framework has schedules, kinds of ZeRO and recomputed modules of its own. A key that it cannot state would be lost, and the job would be another than the one that was predicted.";
        "meshwright export llama3-8b --to megatron --gpus 8 --seq 4096 --global-batch 64 --parallel pp=4,vp=2,schedule=zb-v";
        "Pin a value that the framework has, as the message names it, and plan again; or leave the key out with --allow.";
    751 FlagsUnreadable "configuration of another framework cannot be read":
        "A flag of Megatron-LM, or a key in the file of torchtitan or nanotron, has a value that the framework refuses, or one that no configuration can state, such as layers of multi-token prediction in a layout of stages.";
        "meshwright estimate llama3-8b --gpus 8 --from-megatron run.sh";
        "Correct the value, or leave it out and give the configuration with --parallel.";
    801 FileUnreadable "file cannot be read or written":
        "The operating system refuses the path, or a text file contains other data.";
        "meshwright train --config run.toml";
        "Check the path, its permissions, and its kind: a file, or a folder.";
    802 UnknownPass "unknown pass":
        "`--stop-after` takes the name of a pass; `meshwright passes` lists them.";
        "meshwright compile tiny-llama --stop-after reshart";
        "Correct the name; meshwright passes lists them.";
    803 ConflictingOptions "conflicting options":
        "Two inputs set the same property, such as a file with a mesh and --parallel.";
        "meshwright compile two.ir --parallel tp=2\nmesh @two = [dp=2]";
        "Omit one of the two.";
    804 UnknownCode "unknown error code":
        "`meshwright error` takes a code such as MW0209.";
        "meshwright error MW9999";
        "Copy the code from the message; meshwright error lists all.";
    805 BadOption "invalid option value":
        "The value does not have the form that the option's help shows, or is out of range.";
        "meshwright compile tiny-llama --parallel tp";
        "Give the option a value of the form and range that its help shows.";
    806 NotInThisVersion "not supported in this version":
        "The option is valid, but this version does not implement it. It is rejected instead of being ignored silently.";
        "meshwright train tiny-llama --parallel dp=2,recompute=auto";
        "Omit it, or use a value that the message names.";
    807 RequestUnreadable "unreadable request":
        "The fields of a JSON request, or of a run.toml, are the long options of the subcommand, with `_` for `-`, each with a value of its type. Other fields are rejected.";
        "steps = \"many\"";
        "Correct the field that the message names.";
    808 BadUsage "invalid command line":
        "The subcommand or an option does not exist, an option is given twice or lacks its value, or its value must be a number.";
        "meshwright trian tiny-llama";
        "See meshwright --help, and meshwright SUBCOMMAND --help.";
    820 UnknownCluster "unknown cluster":
        "A cluster is the name of a preset or the path of a TOML file.";
        "meshwright clusters h1000";
        "meshwright clusters lists the presets.";
    821 BadCluster "invalid cluster file":
        "A cluster file states the peaks, memory and links of its devices in operations, bytes and seconds, without prefixes such as GB or us. A figure is missing, unknown or out of the range of its unit.";
        "memory = 80";
        "Correct the key that the message names. A preset is a full example: meshwright clusters h100.";
    822 UnknownStack "unknown stack":
        "A stack is the name of a preset or the path of a TOML file.";
        "meshwright stacks megatron";
        "meshwright stacks lists the presets.";
    823 BadStack "invalid stack file":
        "A stack file states eight fitted constants, each within its interval, and the features of the framework. A figure is missing, unknown or out of its range.";
        "matmul = { value = 1.2, low = 0.7, high = 1.0 }";
        "Correct the key that the message names. A preset is a full example: meshwright stacks meshwright.";
    830 NoPlan "not a plan file":
        "A plan is the JSON that `meshwright plan --format json` prints: `meshwright schema plan` prints its schema. The file is not JSON, lacks a field, or reports that no configuration fits.";
        "meshwright explain notes.json";
        "Generate a plan with meshwright plan MODEL .. --format json -o FILE.";
    831 PlanVersion "unsupported plan version":
        "The schema of plan files has a version, `meshwright.plan/2`. A field may have another meaning in another version, so other versions are rejected.";
        "{\"schema\": \"meshwright.plan/3\", \"tool_version\": \"9.0.0\"}";
        "Regenerate the plan with this version, or read it with the version that wrote it.";
}

impl Code {
    /// The entry of the code.
    pub fn entry(self) -> &'static Entry {
        &CATALOGUE[self as usize]
    }
}
