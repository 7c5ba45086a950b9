//! The one table of all diagnostics: number, name, title, explanation, example, cure. A new one is a new row.
//!
//! 00xx text, 01xx types and ops, 02xx shardings and meshes, 03xx model configurations, 04xx planning, 05xx schedules,
//! 06xx programs, 07xx data and training, 08xx the command line.

use std::fmt;

/// What `--explain` shows of a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// The number in `MW0209`.
    pub number: u16,
    /// What it is, in a few words.
    pub title: &'static str,
    /// Why that is wrong.
    pub explanation: &'static str,
    /// Text that has it.
    pub example: &'static str,
    /// What to do.
    pub cure: &'static str,
}

macro_rules! catalogue {
    ($($number:literal $name:ident $title:literal: $explanation:literal; $example:literal; $cure:literal;)*) => {
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
            cure: $cure,
        }),*];
    };
}

catalogue! {
    1 UnexpectedCharacter "a character that means nothing here":
        "The text has a character that begins no name, number or mark of the language. Names begin with a letter; values with `%`, blocks with `@`, coordinates with `$`.";
        "%y: f32[b] = silu(%x) # the activation";
        "Take the character out; a comment begins with `//`.";
    2 UnexpectedToken "something else was expected":
        "The text does not follow the grammar at this place. The message says what may stand here and what stands here instead.";
        "%y: f32[b] silu(%x)";
        "Write what is expected at this place.";
    3 BadNumber "a number that does not fit":
        "Sizes and counts are whole numbers of at least one that fit in 64 bits; indices and micro-batches fit in 32.";
        "dims [b=8, h=0]";
        "Write a whole number in the range.";
    4 UnterminatedString "a string without an end":
        "A string ends with `\"` on the line on which it begins.";
        "%y: f32[b, f] = einsum(%x, %w, eq=\"b h, h f -> b f)";
        "Close the string on its line.";
    5 UnknownItem "an unknown item":
        "A file consists of the items mesh, dims, param, unit, model, block, step, staged, schedule and program. Each begins with its word on a line of its own.";
        "blok @same(%x: f32[b]) -> f32[b] { return %x }";
        "Correct the word with which the item begins.";
    6 UndefinedValue "a value that is not defined":
        "A statement reads a value that no argument and no earlier statement defines. Values are defined once, before they are read; a section may read the values of earlier sections of its block.";
        "%y: f32[b] = silu(%z)";
        "Define the value first, or correct its name.";
    7 Redefinition "a name that is taken":
        "Each value, dim, parameter and block is defined once. Only a `U` section may store into a parameter or state again, and that once.";
        "%y: f32[b] = silu(%x)\n%y: f32[b] = neg(%y)";
        "Give the second one another name.";
    8 UnknownBlock "an unknown block or body":
        "A call names a block that the file does not have, or a row a body that the program does not have.";
        "%y = call @layr(%x)";
        "Correct the name, or add the block.";
    9 UnknownDim "an unknown dim":
        "A type names a dim that is not in the `dims` table.";
        "block @same(%x: f32[b, q]) -> f32[b, q] {";
        "Add it to `dims`, or write its size as a number.";
    10 UnknownType "an unknown element type":
        "The element types are f32, bf16, f16, f8e4m3, f8e5m2 and i32.";
        "block @same(%x: float[b]) -> float[b] {";
        "Use one of the element types.";
    11 WrongBound "a bound that does not follow":
        "`<=` states how many elements a rank holds at most. It follows from the size and the axes as nested ceilings, so what is stated must agree.";
        "mesh @m = [tp=2]\nblock @same(%x: f32[40<=10{tp}]) -> f32[40<=10{tp}] {";
        "Write the bound that follows, or leave it out.";
    12 DuplicateItem "an item that may stand once":
        "A file has at most one mesh, dims, model, step, staged, schedule and program.";
        "dims [b=8]\ndims [s=4]";
        "Join the two into one.";
    13 UnknownParam "an unknown parameter":
        "A call passes a parameter that no `param` line declares.";
        "call @head(%x; %heed)";
        "Correct the name, or declare the parameter.";
    14 MisplacedArgument "an argument on the wrong side of `;`":
        "Values and inputs stand before the `;`, constants, parameters and states after it.";
        "block @same(%x: f32[b], %w: param f32[h]) -> f32[b] {";
        "Put the argument on the other side of the `;`.";
    15 BadAction "no action of a schedule":
        "An action is a stage, a letter, a micro-batch and perhaps a slice: `2F3`, `2F3:1`. The letters are F, I, W, B, G, D, R, N, U, O and L.";
        "rank 0: 0F0 0X0 R N U";
        "Use one of the letters of actions.";
    16 BadBody "a program that cannot be read":
        "A body is named after its block and its part, `layer.F`; what starts must be a transfer; only a receive brings something.";
        "body @layer.Q(%x: f32[b]) {";
        "Name the body after its block and part, start only transfers, and wait only for receives.";
    17 LongExpression "a rank expression that is too long":
        "A rank expression has at most 64 operators and parentheses: it says where a peer stands, which takes two or three.";
        "%y: f32[1] = slice(%x, dim=0, start=1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1, length=1)";
        "Write the expression shorter.";
    101 UnknownOp "an unknown op":
        "There is no op of this name. A contraction of any kind is `einsum` with an equation.";
        "%y: f32[b, f] = einsun(%x, %w, eq=\"b h, h f -> b f\")";
        "Use an op that there is; a contraction of any kind is einsum.";
    102 BadAttribute "a missing or ill-typed attribute":
        "An attribute that the op needs is missing, or it is of the wrong kind.";
        "%y: f32[b] = scale(%x)";
        "Give the op the attributes that it needs, each in its form.";
    103 UnknownAttribute "an attribute that is not known":
        "The op, parameter or stage does not have this attribute. The help lists those it has.";
        "%y: f32[b] = silu(%x, by=2)";
        "Take the attribute out, or correct its name.";
    104 OperandMismatch "operands that do not fit":
        "The operands' shapes or element types do not fit the op. There is no implicit broadcasting and no implicit cast.";
        "block @up(%x: f32[b, h]; %w: param f32[f, h]) -> f32[b, f] {\n  %y: f32[b, f] = einsum(%x, %w, eq=\"b h, h f -> b f\")";
        "Make the sizes and types agree; use broadcast or cast where that is meant.";
    105 ResultType "a stated type that does not follow":
        "The type of a result follows from the operands. What the text states has another element type or other sizes.";
        "%y: f32[b] = cast(%x, to=bf16)";
        "State the type that follows from the operands.";
    106 ResultCount "too many or too few results":
        "The op gives another number of results than the statement names.";
        "%y: f32[b, h] = rms_norm(%x, %g, eps=1e-5)";
        "Name as many results as the op gives.";
    107 OperandCount "too many or too few operands":
        "The op takes another number of operands.";
        "%y: f32[b] = silu()";
        "Give the op the operands that it takes.";
    108 UseBeforeDefinition "a value read before it is there":
        "A statement or call reads a value that is defined further down, or in a later section. Sections run in the order F, I, W, U. In a text such a value is not defined yet; a model that is built in memory can have this.";
        "block[SectionKind::F].stmts.swap(0, 1);";
        "Move the definition up, before what reads it.";
    109 CallMismatch "a call that does not fit its block":
        "A call passes other arguments than the block takes, by number, kind or type, or names another number of results. A repeated block's first arguments are what it returns.";
        "call @head(%y, %x)";
        "Pass what the block's head says, in its order.";
    110 ReturnMismatch "a return that does not fit":
        "A section returns what its head or its kind asks for: F the block's results, I one cotangent per float argument in order, U one f32 scalar for the step graph, W nothing.";
        "block @same(%x: f32[b]) -> f32[h] {\n  return %x";
        "Return values of the types that are asked for, as many and in their order.";
    111 SectionShape "a section of the wrong shape":
        "I takes one cotangent per float result, of the result's type. W is made of `+=` statements whose results are gradients.";
        "block @act(%x: f32[b, h]) -> f32[b, h] {\nI(%y.d: f32[b]):";
        "Give the section the arguments and statements of its kind.";
    112 BadAccumulation "an accumulation that does not fit":
        "`+=` stands only in W. Its result is the gradient of a parameter, `%w.grad`, of the parameter's sizes in f32, and each gradient has exactly one.";
        "%w.gradient: f32[h] += reduce_sum(%y.d, eq=\"b h -> h\")";
        "Name the result `%w.grad` after its parameter, and accumulate once, in W; add before.";
    113 BadRepeat "a repeat that does not fit":
        "The range of a repeat is not empty and lies within the parameter arrays that it indexes.";
        "param %layer[2].w: f32[h, h] init=normal(0.02)\n%y = repeat i in 0..3 @layer(%x; %layer[i])";
        "Shorten the range, or declare more.";
    114 TooLarge "sizes beyond all bounds":
        "A tensor has at most 2^48 elements, a mesh 2^20 devices, a parameter array 1024 elements, a model runs at most 1024 blocks, and a text has 2^25 words. Above that nothing real lies, and counts would overflow.";
        "meshwright compile tiny-llama --seq 18446744073709551615";
        "Make the size smaller; one digit too many is soon written.";
    115 NoGradient "a model that has no gradient":
        "Training derives the sections I, W and U of a block from its F. An op on the way to the loss has no gradient, the names that the derived sections need are taken, or some sections are there already.";
        "%l: f32[] = sum_squares(%x)";
        "Use an op that has a gradient, or another name, as the message says.";
    201 UnknownAxis "an axis that the mesh does not have":
        "Axes in braces and after `$` are axes or groups of the `mesh` line.";
        "block @same(%x: f32[b{dpp}]) -> f32[b{dpp}] {";
        "Correct the name, or add the axis to the mesh.";
    202 AxisTwice "an axis used twice":
        "A tensor uses an axis at most once: on one dim, or on its storage, or for what is owed.";
        "block @same(%x: f32[b{tp}, h{tp}]) -> f32[b{tp}, h{tp}] {";
        "Take the axis off one of them.";
    203 StorageOverlap "a storage axis that already shards a dim":
        "The storage axes cut what a rank holds after the dims are sharded, so they must be other axes.";
        "block @same(%x: f32[b]; %w: param f32[h{dp}, f]/{dp}) -> f32[b] {";
        "Use the axis in one place.";
    204 UnevenIndivisible "an exact dim that the axes do not divide":
        "Heads and experts cannot be cut: a dim marked `exact` must be a multiple of the product of its axes. All other dims may be uneven.";
        "meshwright compile tiny-llama --mesh tp=3";
        "Choose a degree that divides the dim.";
    205 AxesAboveDim "more devices than elements":
        "The product of the axes on a dim is above its size: some devices would never have anything.";
        "mesh @m = [tp=8]\nblock @same(%x: f32[4{tp}]) -> f32[4{tp}] {";
        "Use fewer axes on this dim, or smaller ones.";
    206 PipelineOnDim "the pipeline axis on a tensor":
        "`pp` divides the model's calls into stages. It never shards a tensor.";
        "block @same(%x: f32[b{pp}]) -> f32[b{pp}] {";
        "Use another axis, or none.";
    207 CountedSharded "a sharded dim of unknown size":
        "A dim whose size only the run knows is never sharded, gathered or merged.";
        "block @same(%n: i32[], %x: f32[64<=64(%n){tp}]) -> f32[64<=64(%n){tp}] {";
        "Shard another dim.";
    208 RuleViolated "a sharding that the op cannot have":
        "The op's rule says which dims of its tensors go together, and which must stay whole. The statement's types do not follow it.";
        "block @up(%x: f32[b, h]; %w: param f32[h, f{tp}]) -> f32[b, f] {\n%y: f32[b, f] = einsum(%x, %w, eq=\"b h, h f -> b f\")";
        "Shard the tensors as the rule says, or put a collective or a reshard between.";
    209 PendingSum "a sum that is still owed":
        "Only linear ops take an operand whose partial sums have not been added up yet, and their results owe the sum in turn.";
        "%p: f32[b, h]+{tp} = einsum(%x, %w, eq=\"b f, f h -> b h\")\n%y: f32[b, h] = silu(%p)";
        "Pay it first, with all_reduce or reduce_scatter, or state what is owed.";
    210 BadCollective "a collective that does not fit":
        "A collective takes axes from, or puts axes on, the minor end of a dim, and pays only what is owed; a permute leaves each dim as many shards as it has. The result's type follows.";
                "%1: f32[b{dp}, h] = all_slice(%y.d, dim=1, over={dp})";
        "Name the dim and the axes that the operand has, and the type that follows.";
    211 UnknownAnnotatedDim "a seed rule with an unknown dim":
        "A rule such as `tp: g, f, v` names dims of the `dims` table, which all shardings start from.";
        "meshwright compile model.ir --mesh dp=2\ndims [n=8, c=16]";
        "Name the dims as the built models do: b, s, g, f, v.";
    212 BadMesh "a mesh that does not hold":
        "Axes and groups have names of their own, axes at least one device, groups at least one axis.";
        "mesh @m = [dp=2, dp=4]";
        "Rename the axis, or give it a size of at least one.";
    213 BadStorage "a storage that the op cannot have":
        "Only ops whose tensors all have the same shape work on stored runs, and then all of them are stored the same.";
        "block @up(%x: f32[b, h]; %w: param f32[h, f]/{dp}) -> f32[b, f] {\n%y: f32[b, f] = einsum(%x, %w, eq=\"b h, h f -> b f\")";
        "Gather the stored tensor first: all_gather(.., over={..}) without `dim`.";
    214 BoundaryLayout "a layout that changes at a call":
        "What a call passes is laid out as the block's head says.";
        "model @m(%x: input f32[b{dp}, h]) {\n%x: input f32[b, h{dp}]; %clip: const f32[], %lr: const f32[], %step: const f32[], %w: param f32[h, h],";
        "Make the call and the head of the block agree.";
    301 ConfigMissingField "a field that is missing":
        "A model's config.json lacks a field that has no default: the family, or what the stated kind of rotary positions needs.";
        "{\"hidden_size\": 64, \"num_hidden_layers\": 2}";
        "Add the field; it has no default.";
    302 ConfigContradiction "fields that contradict each other":
        "Two sizes cannot both hold, such as a hidden size that the heads do not divide, or a sequence longer than the table of positions.";
        "{\"model_type\": \"gpt2\", \"n_embd\": 60, \"n_head\": 8, \"n_layer\": 2, \"n_positions\": 64, \"vocab_size\": 257,";
        "Change one of the fields to agree with the other.";
    303 UnsupportedFamily "a model family that is not supported":
        "The `model_type` is none of the families that have a builder.";
        "{\"model_type\": \"mamba\"}";
        "Use a supported family, or write the model as a .ir file.";
    304 UnsupportedOption "a model option that is not supported":
        "The family is known, but the config asks for a variant that the builder does not have, has a key that only another family reads, or one that is nearly a key. It would be wrong to leave it out in silence. docs/config-keys.md lists all keys.";
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"hidden_act\": \"relu2\"}";
        "Take the key out, or give it a value that is supported, if the model permits it.";
    305 ConfigSyntax "a config that cannot be read":
        "The file is no JSON object, or a field has the wrong type.";
        "{\"model_type\": \"llama\", \"vocab_size\": 257, \"hidden_size\": \"big\"}";
        "Give a config.json as `transformers` writes it.";
    306 UnknownModel "an unknown model":
        "The name is no preset, no file, and no folder with a config.json.";
        "meshwright train tiny-lama";
        "Correct the name or the path; meshwright models lists the presets.";
    401 ImpossibleLayout "a layout that its devices do not allow":
        "The degrees of a layout are shares of the same devices: dp, tp, pp and cp together are all of them; ep and etp, and the size of a ZeRO group, are cut out of those below pp.";
        "meshwright estimate tiny-llama --cluster h100 --gpus 8 --seq 128 --global-batch 8 --layout tp=3";
        "Choose degrees whose product is the number of devices, or leave out dp to have it derived.";
    402 ImpossibleDegrees "degrees that do not go together":
        "A mesh on links of several levels (devices of a node, nodes of a rack) fills each level with whole axes: an axis may span levels, but not end in the middle of one. Experts take parts of tp, cp and dp, the innermost ranks first: etp ranks share an expert, ep groups of them hold different ones, and each part divides what is left of its axis.";
        "let layout = Layout { dp: 2, tp: 6, ..Layout::default() };\nlet goal = Goal { levels: vec![4], ..Goal::of(layout) };";
        "Choose degrees that fill whole levels of the links; let ep x etp divide dp x cp x tp.";
    403 BatchDoesNotDivide "a batch that cannot be split so":
        "The global batch is data-parallel degree x micro-batch x number of micro-batches, all whole.";
        "meshwright compile tiny-llama --mesh dp=2,mbs=3 --global-batch 8";
        "Change the global batch or the micro-batch.";
    404 NoLayout "no layout serves the devices":
        "A layout uses all devices that it is given: dp x tp x cp x pp are as many. tp divides the heads, ep the experts, dp x micro-batch the global batch; a pipeline has no more stages than layers. What --pin says must hold too.";
        "meshwright plan tiny-llama --cluster h100 --gpus 8 --seq 128 --global-batch 8 --pin tp=3";
        "Change --gpus (or give --max-gpus), the global batch, or the pins.";
    405 TooManyStages "more stages than block runs":
        "Every stage has at least one run of a block.";
        "meshwright compile tiny-llama --mesh pp=64";
        "Use fewer stages.";
    406 EmptyModel "a model that runs nothing":
        "The stages of a pipeline are made of the calls in the item `model`. The file has none: it is empty, or holds only blocks.";
        "meshwright compile model.ir";
        "Add an item `model` with a call of each block, in their order.";
    407 NothingFits "no layout fits into memory":
        "Every layout that the pins allow needs more memory on some rank than a device has. The answer says which constraints clash, and what would make something fit.";
        "meshwright plan llama3-70b --cluster h100 --gpus 1 --seq 4096 --global-batch 8 --pin mbs=1";
        "Use more devices, take pins away, or make batch or sequence smaller.";
    408 NotFinished "a search that was stopped before its answer":
        "The deadline came before a layout was found that fits, and before it was shown that none does. The layout that needs least memory of those looked at is told, if there is one.";
        "meshwright plan llama3-8b --gpus 1 --max-gpus 1000 --seq 8192 --global-batch 1024 --deadline 1e-9 --format ir";
        "Give a longer deadline, or none; pins make the search smaller.";
    409 BeyondStack "a pin that the stack does not support":
        "A stack's file says what the framework has: degrees, schedules of pipelines, modules that it recomputes, ZeRO stages and the rest, in its table `supports`. A plan stays within, so that it can be run; a pin of something else cannot be kept.";
        "meshwright plan tiny-llama --cluster h100 --gpus 8 --seq 128 --global-batch 8 --pin schedule=zb-v";
        "Pin what the stack has, take a stack that has it, or add --beyond-stack to plan as if it had.";
    410 NoRoom "no sharding that fits into the memory":
        "With --shard auto the shardings are chosen so that parameters, gradients, optimizer state and what the backward reads fit into the memory of a device. However they are cut over these axes, it is too much.";
        "meshwright compile tiny-llama --mesh dp=2 --shard auto --memory 1MB";
        "Take more devices, smaller micro-batches, or devices with more memory.";
    501 Deadlock "rows that wait for each other":
        "After some actions no rank can go on: each waits for what another does later.";
        "rank 0: 0B0 0F0 R N U";
        "Move the action that the others wait for to the front.";
    502 MissingAction "an action that is missing or doubled":
        "Each stage does F and B, or F, I and W, exactly once for each micro-batch, on its own rank.";
        "rank 0: 0F0 0F0 0B0 R N U";
        "Add or remove the action, or move it to the rank of its stage.";
    503 UnknownSchedule "an unknown kind of schedule":
        "`meshwright schedules` lists the kinds.";
        "meshwright schedule --stages 2 --microbatches 4 --kind 2f2b";
        "Correct the name; meshwright schedules lists the kinds.";
    504 UnsuitedSchedule "a schedule that does not suit the numbers":
        "The kind needs another number of stages, chunks or micro-batches, at least one of each, and no more than a million actions together.";
        "meshwright schedule --stages 0 --microbatches 4 --kind gpipe";
        "Change the numbers as the message says.";
    505 OrderViolated "an action before what it needs":
        "F of a stage needs F of the stage before; I needs F and the I of the stage after; W needs I; R needs all W, N all R, U needs N, and these three end the row.";
        "rank 0: 0F0 0B0";
        "Order the row: F before I before W, then R, N and U at its end.";
    506 MemoryLimit "a schedule above the memory limit":
        "A rank would hold more kept activations at a time than the limit allows. The schedule is drawn all the same; the exit status is 4.";
        "meshwright schedule --stages 2 --microbatches 4 --kind gpipe --memory-limit 2";
        "Choose a schedule that holds less, or raise the limit.";
    507 BadCosts "costs that do not fit the schedule":
        "Times and memory are finite and not negative; a list has one number per stage, a limit one per rank; memory taken by F is what I and W free.";
        "{\"f\": [1, 2]}";
        "Give one number for all stages, or as many as there are, each from 0 to 1e200.";
    508 BadStages "stages that do not cover the model":
        "The stages name the calls of the model in order, each instance once, on the ranks of the mesh's axis `pp`.";
        "stage 0 rank 0: @layer[0..2]";
        "Leave the item `staged` out, or name all calls in order.";
    509 TooManyActions "more actions than are scheduled":
        "The rows of all ranks hold runs of blocks x micro-batches; there are at most 2^16.";
        "meshwright compile tiny-llama --global-batch 1000000";
        "Use larger micro-batches (--mbs) or a smaller global batch.";
    512 ForeignSchedule "a file that holds no schedule":
        "`--from` and `--compare` read CSV as torch.distributed.pipelining dumps it, a line per rank and a cell per action, and the JSON of `schedule --format json`; `--compare` reads Chrome traces too. Each message has a sender and a receiver, in the same order at both ends.";
        "1F0,1G0";
        "Correct the cell that the message names.";
    601 ProgramInvalid "a program that breaks an invariant":
        "The program checker runs all rows symbolically: registers, messages, bundles and collectives must match, and all that the model says be done once. A program made here that fails is a fault of ours.";
        "run @only.I call=0 instance=0 microbatch=1 (%only.l.d:1; %only.F:1) save %only.I:1\nfree %only.l.d:1, %only.F:1\nfree %only.I:1";
        "Correct the program, or leave it out to have it made anew.";
    603 NotPlanned "a model that is not planned":
        "A program is made of a differentiated model whose shardings are closed and whose collectives are placed.";
        "scheduler::emit::emit(&model, &staged, &schedule, 1, &CPU).unwrap_err().code()";
        "Compile the model from level 1.";
    604 NoProgram "a model that no program can be made of":
        "What the sections of the blocks pass to each other does not fit: a cotangent of another type, a value that nothing differentiates, a parameter that two blocks update, or a constant that nobody gives.";
        "block @head(%x: f32[b, h]; %by: const f32[]) -> loss f32[] {";
        "Correct the block that the message names.";
    701 DataMissing "data that is not there":
        "The path given with --data does not exist, cannot be read, or is a device.";
        "meshwright train tiny-llama --data no/such/folder";
        "Correct the path or its permissions.";
    702 DataEmpty "data without content":
        "The path exists, but holds no file with text: empty and binary files do not count.";
        "meshwright train tiny-llama --data text.txt";
        "Give a file or folder with text in UTF-8.";
    703 DataTooSmall "less data than one sequence needs":
        "The tokens of the training part or of the held-out part do not fill one sequence with the token that follows it.";
        "so little to read";
        "Add text, shorten the sequence, or change the held-out fraction.";
    704 PrecisionRefused "a precision that is not supported":
        "The precision is not supported here: rather than compute in another one in silence, or badly, it stops.";
        "meshwright train tiny-llama --precision bf16";
        "Train with --precision f32.";
    705 CheckpointMismatch "a checkpoint of another run":
        "A run goes on from a checkpoint with the same model, text, held-out fraction, sequence length, global batch, optimizer, precision and seed; only then is what follows a continuation. The layout, the number of steps, learning rate, clipping and whatever concerns output may change.";
        "meshwright train tiny-gpt2 --data text --valid-fraction 0.3 --seq 16 --seed 1 --resume";
        "Take the options of the run, as `--resume` alone does, or start anew with another --out.";
    706 NotFinite "a loss that is not finite":
        "The loss or the gradient norm became NaN or infinite, so that going on would spoil the parameters.";
        "let request = TrainRequest { lr: 1e30, optimizer: \"sgd\".into(), clip: 0.0, warmup: 0, ..request };";
        "Lower the learning rate, lengthen the warm-up or bound the gradient norm.";
    707 RankFailed "a device that failed":
        "One rank stopped with an error and the others were woken. The first to fail is named.";
        "ranks[1].fail(\"out of memory\".into());";
        "See the cause that is named with the rank; the run may be started again.";
    708 NotATextModel "a model that does not read text":
        "Training feeds token ids `%tok`, labels `%lab`, positions `%pos` and segments `%seg`, each i32[b, s], with ids below 257: the bytes and an end of document. A model with other inputs or a smaller vocabulary cannot be trained so.";
        "{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_head\": 2, \"n_layer\": 1, \"n_positions\": 128, \"vocab_size\": 100,";
        "Use those inputs, and a vocabulary of at least 257.";
    709 InputMismatch "an input that the program does not take":
        "A step is fed one set of inputs per micro-batch, each of the elements that its type says.";
        "let input = StepInput { microbatches: Vec::new(), valid_tokens: 1, loss_scale: 1.0, lr: 0.1, step: 1 };";
        "Give what the program takes; the machine is as before.";
    710 TooLittleMemory "a run that needs more memory than there is":
        "All devices are threads of one process, so that what they hold comes from one memory: parameters, gradients, optimizer state and activations of all ranks; the text is there too. What counts is what the machine has free, and the limits on the process (ulimit, cgroups). Any other command says the same where the system gives it no more.";
        "let request = TrainRequest { model: \"llama2-7b\".into(), mesh: \"dp=512\".into(), global_batch: 512, ..training() };";
        "Use a smaller model, sequence or micro-batch, or fewer data-parallel ranks.";
    720 CheckpointMissing "no checkpoint where one was asked for":
        "The path given with --resume is neither a checkpoint nor the folder of a run that has one. A run has checkpoints only with --save-every.";
        "meshwright train tiny-gpt2 --data text --valid-fraction 0.3 --seq 16 --resume";
        "Correct the path, or leave out --resume to start at the first step.";
    721 CheckpointDamaged "a damaged checkpoint":
        "Every file of a checkpoint has a size and a checksum, and one of them differs: the file was cut off, changed or removed after it was written. A checkpoint is never used in part.";
        "\"files\": [{\"name\": \"data-0000.safetensors\", \"bytes\": 11, \"crc32\": \"f2ae1109\"}],";
        "Resume from the older checkpoint that the message names.";
    722 CheckpointVersion "a checkpoint of an unknown format":
        "The manifest names a format that this version cannot read: another version of the program wrote it.";
        "\"schema\": \"meshwright.checkpoint/2\",";
        "Resume with the version that wrote it.";
    723 CheckpointUnwritable "a checkpoint that cannot be written":
        "The operating system refused to write, most often because the disk is full. The checkpoints before it are as they were.";
        "let run = Path::new(\"/dev/null/run\");";
        "Make room, or let fewer checkpoints stay (--keep-last); --resume goes on from the last one.";
    724 RunHasCheckpoints "a run that would mix with another one":
        "The folder of the run holds checkpoints of an earlier one. To start anew there would leave two runs in one folder, and --resume could not tell them apart.";
        "meshwright train tiny-gpt2 --data text --valid-fraction 0.3 --seq 16";
        "Go on with --resume, choose another --out, or remove the old checkpoints.";
    725 RunInUse "a folder in which another run writes":
        "Two runs at once in one folder would write over each other's records and checkpoints. The folder has a file `run.lock`, which a run keeps locked as long as it lives; a lock of a process that has ended holds nobody up.";
        "let code = train(&request, &mut Quiet).unwrap_err().code(); // the file is locked";
        "Wait until the other run has ended, or choose another --out.";
    726 RunEnded "a run that a signal has ended":
        "SIGINT (Ctrl-C), SIGTERM or SIGHUP asked the run to end. It finished the step under way and saved a checkpoint; the exit status is 128 and the signal's number. A second signal ends the process at once.";
        "let code = train(&request, &mut Ending).unwrap_err().code(); // asked to end behind the first step";
        "Go on with --resume, as the message says.";
    730 NoGpu "no GPU that can be used":
        "The cuda backend needs an NVIDIA GPU with its driver, and NVRTC and cuBLASLt of the CUDA 13 toolkit. They are looked for when they are first used, by the names that the message lists, wherever the system's loader looks.";
        "Device::open(usize::MAX).map(drop).unwrap_err().code()";
        "Install what the message names, or use --backend cpu.";
    731 OpWithoutGpuKernel "an op that the GPU backend lacks":
        "The program has an op for which there is no CUDA kernel. Nothing is computed elsewhere in silence.";
        "check_ops(\"cuda\", &program).unwrap_err().code()";
        "Use --backend cpu.";
    801 FileUnreadable "a file that cannot be read or written":
        "The operating system refuses the path, or a file that should hold text holds something else.";
        "meshwright train --config run.toml";
        "Check the path, its permissions, and that it is what is needed: a file, or a folder.";
    802 UnknownPass "an unknown pass":
        "`--stop-after` takes the name of a pass; `meshwright passes` lists them.";
        "meshwright compile tiny-llama --stop-after reshart";
        "Correct the name; meshwright passes lists them.";
    803 ConflictingOptions "options that exclude each other":
        "Two options say different things about the same, such as a file with a mesh and --mesh.";
        "meshwright compile two.ir --mesh tp=2\nmesh @two = [dp=2]";
        "Leave one of the two out.";
    804 UnknownCode "a code that does not exist":
        "`--explain` takes a code such as MW0209.";
        "meshwright --explain MW9999";
        "Copy the code from the message; meshwright --explain lists all.";
    805 BadOption "an option with a value that it cannot have":
        "The option's value does not have the form that its help shows, or lies out of its range.";
        "meshwright compile tiny-llama --mesh tp";
        "Give the option a value of the form and range that its help shows.";
    806 NotInThisVersion "something that this version does not have yet":
        "The option is understood, but nothing here carries it out. It is refused rather than left out in silence.";
        "meshwright train tiny-llama --mesh dp=2,cp=2,cp_kind=ring";
        "Leave it out, or give it a value that the message names.";
    807 RequestUnreadable "a request that cannot be read":
        "A request in JSON, or a run.toml, has the fields of the verb's long options, with `_` for `-`, each of its type, and no others.";
        "steps = \"many\"";
        "Correct the field that the message names.";
    808 BadUsage "a command line that is not understood":
        "The verb or an option does not exist, is given twice or lacks its value, or its value is no number where one is needed.";
        "meshwright trian tiny-llama";
        "See meshwright --help, and meshwright VERB --help.";
    820 UnknownCluster "a cluster that is not known":
        "A cluster is the name of a preset or the path of a TOML file.";
        "meshwright clusters h1000";
        "meshwright clusters lists the presets.";
    821 BadCluster "a cluster file that cannot be used":
        "A cluster file states the peaks, memory and links of its devices in operations, bytes and seconds, without prefixes such as GB or us. A figure is missing, unknown or out of the range that such a unit has.";
        "memory = 80";
        "Correct the key that the message names. A preset is a full example: meshwright clusters h100.";
    822 UnknownStack "a stack that is not known":
        "A stack is the name of a preset or the path of a TOML file.";
        "meshwright stacks megatron";
        "meshwright stacks lists the presets.";
    823 BadStack "a stack file that cannot be used":
        "A stack file states eight fitted constants, each within its interval, and the facts of the code. A figure is missing, unknown or out of its range.";
        "matmul = { value = 1.2, low = 0.7, high = 1.0 }";
        "Correct the key that the message names. A preset is a full example: meshwright stacks meshwright.";
    830 NoPlan "a file that is no plan":
        "A plan is the JSON that `meshwright plan --format json` prints: `meshwright schema plan` says its form. The file is no JSON, lacks a field, or is the answer that nothing fits.";
        "meshwright explain notes.json";
        "Write a plan with meshwright plan MODEL .. --format json -o FILE.";
    831 PlanVersion "a plan of another version":
        "The form of plan files has a version, `meshwright.plan/1`. A field may mean something else in another one, so it is not read.";
        "{\"schema\": \"meshwright.plan/2\", \"tool_version\": \"9.0.0\"}";
        "Make the plan again with this version, or read it with the one that made it.";
}

impl Code {
    /// The row of the code.
    pub fn entry(self) -> &'static Entry {
        &CATALOGUE[self as usize]
    }

    /// The code of a text such as `MW0209`, `mw209` or `209`.
    pub fn from_text(text: &str) -> Option<Code> {
        let digits = text.strip_prefix("MW").or(text.strip_prefix("mw")).unwrap_or(text);
        let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u16>().ok()).flatten()?;
        CATALOGUE.iter().find(|entry| entry.number == number).map(|entry| entry.code)
    }
}

impl Entry {
    /// From when on it can arise: what the program does when it finds out.
    pub fn arises(&self) -> &'static str {
        match self.number / 100 {
            0 => "while a text in the language of the IR is read",
            1 => "while a model is checked, before its first pass",
            2 => "from the first look at a mesh to the last pass of the planner",
            3 => "while the configuration of a model is read",
            4 => "while a model is laid out for its devices",
            5 => "while a model is cut into stages, or a schedule is made or checked",
            6 => "while a program is made, checked or loaded",
            7 => "while a run is prepared, or under way",
            _ => "while a command line or a request is read",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MW{:04}", self.entry().number)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}\n\n{}\nIt arises {}.\n", self.code, self.title, self.explanation, self.arises())?;
        for line in self.example.lines() {
            writeln!(f, "    {line}")?;
        }
        writeln!(f, "\n{}", self.cure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_are_found_by_their_text() {
        assert!(CATALOGUE.windows(2).all(|pair| pair[0].number < pair[1].number));
        for entry in CATALOGUE {
            assert_eq!(Code::from_text(&entry.code.to_string()), Some(entry.code));
        }
        assert_eq!(Code::from_text("mw209"), Code::from_text("209"));
        for text in ["MW9999", "", "MW", "+209", "MWMW0209", "99999999"] {
            assert_eq!(Code::from_text(text), None, "{text}");
        }
    }
}
