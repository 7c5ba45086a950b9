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
        "%y: f32[b] = silu(%x) ;;# done";
        "Take the character out, or begin a comment with `//`.";
    2 UnexpectedToken "something else was expected":
        "The text does not follow the grammar at this place. The message says what may stand here and what stands here instead.";
        "%y: f32[b] silu(%x)";
        "Write what is expected: here `%y: f32[b] = silu(%x)`.";
    3 BadNumber "a number that does not fit":
        "Sizes and counts are whole numbers of at least one that fit in 64 bits; indices and micro-batches fit in 32.";
        "dims [b=0]";
        "Write a number in the range.";
    4 UnterminatedString "a string without an end":
        "A string ends with `\"` on the line on which it begins.";
        "einsum(%x, %w, eq=\"b h, h f -> b f)";
        "Close the string.";
    5 UnknownItem "an unknown item":
        "A file consists of the items mesh, dims, param, unit, model, block, step, staged, schedule and program. Each begins with its word on a line of its own.";
        "blok @mlp(%x: f32[b]) -> f32[b] { return %x }";
        "Correct the word.";
    6 UndefinedValue "a value that is not defined":
        "A statement reads a value that no argument and no earlier statement defines. Values are defined once, before they are read; a section may read the values of earlier sections of its block.";
        "%y: f32[b] = silu(%z)";
        "Define the value first, or correct its name.";
    7 Redefinition "a name that is taken":
        "Each value, dim, parameter and block is defined once. Only a `U` section may store into a parameter or state again, and that once.";
        "%y: f32[b] = silu(%x)\n%y: f32[b] = neg(%x)";
        "Give the second one another name.";
    8 UnknownBlock "an unknown block or body":
        "A call names a block that the file does not have, or a row a body that the program does not have.";
        "%y = call @layr(%x; %w)";
        "Correct the name, or add the block.";
    9 UnknownDim "an unknown dim":
        "A type names a dim that is not in the `dims` table.";
        "%x: f32[b, q]";
        "Add it to `dims`, or write its size as a number.";
    10 UnknownType "an unknown element type":
        "The element types are f32, bf16, f16, f8e4m3, f8e5m2 and i32.";
        "%x: float[b]";
        "Use one of them.";
    11 WrongBound "a bound that does not follow":
        "`<=` states how many elements a rank holds at most. It follows from the size and the axes as nested ceilings, so what is stated must agree.";
        "%x: f32[40<=10{tp}]   with tp=2";
        "Write the bound that follows, or leave it out.";
    12 DuplicateItem "an item that may stand once":
        "A file has at most one mesh, dims, model, step, staged, schedule and program.";
        "dims [b=8]\ndims [s=4]";
        "Join the two.";
    13 UnknownParam "an unknown parameter":
        "A call passes a parameter that no `param` line declares.";
        "call @head(%y; %embb)";
        "Correct the name, or declare the parameter.";
    14 MisplacedArgument "an argument on the wrong side of `;`":
        "Values and inputs stand before the `;`, constants, parameters and states after it.";
        "block @b(%x: f32[b], %w: param f32[h]) -> f32[b] {";
        "Put the `;` between them.";
    15 BadAction "no action of a schedule":
        "An action is a stage, a letter, a micro-batch and perhaps a slice: `2F3`, `2F3:1`. The letters are F, I, W, B, G, D, R, N, U, O and L.";
        "rank 0: 0F0 0X1";
        "Use one of the letters.";
    16 BadBody "a program that cannot be read":
        "A body is named after its block and its part, `layer.F`; what starts must be a transfer; only a receive brings something.";
        "body @layer.Q(%x: f32[b]) {";
        "Follow the grammar in the documentation of `ir::program`.";
    101 UnknownOp "an unknown op":
        "There is no op of this name. A contraction of any kind is `einsum` with an equation.";
        "%y: f32[b, f] = matmul(%x, %w)";
        "Write einsum(%x, %w, eq=\"b h, h f -> b f\"), or the name that the help shows.";
    102 BadAttribute "a missing or ill-typed attribute":
        "An attribute that the op needs is missing, or it is of the wrong kind.";
        "%y: f32[b] = scale(%x)";
        "Give the attribute: scale(%x, by=0.5).";
    103 UnknownAttribute "an attribute that is not known":
        "The op, parameter or stage does not have this attribute. The help lists those it has.";
        "%y: f32[b] = silu(%x, by=2)";
        "Take it out, or correct its name.";
    104 OperandMismatch "operands that do not fit":
        "The operands' shapes or element types do not fit the op. There is no implicit broadcasting and no implicit cast.";
        "%y: f32[b, f] = einsum(%x, %w, eq=\"b h, h f -> b f\")   where h differs";
        "Make the sizes agree; use broadcast or cast where that is meant.";
    105 ResultType "a stated type that does not follow":
        "The type of a result follows from the operands. What the text states has another element type or other sizes.";
        "%y: f32[b] = cast(%x, to=bf16)";
        "State the type that follows.";
    106 ResultCount "too many or too few results":
        "The op gives another number of results than the statement names.";
        "%y: f32[b, h] = rms_norm(%x, %g, eps=1e-5)";
        "Name all results: %y: .., %r: .. = rms_norm(..).";
    107 OperandCount "too many or too few operands":
        "The op takes another number of operands.";
        "%y: f32[b] = silu()";
        "Give it the operands that it takes.";
    108 UseBeforeDefinition "a value read before it is there":
        "A statement reads a value that is defined further down, or in a later section. Sections run in the order F, I, W, U.";
        "F: .. reads a value of W:";
        "Move the definition up.";
    109 CallMismatch "a call that does not fit its block":
        "A call passes other arguments than the block takes, by number, kind or type, or names another number of results. A repeated block's first arguments are what it returns.";
        "%y = call @layer(%x)   where @layer takes %x and %pos";
        "Pass what the block's head says.";
    110 ReturnMismatch "a return that does not fit":
        "A section returns what its head or its kind asks for: F the block's results, I one cotangent per float argument in order, U one f32 scalar for the step graph, W nothing.";
        "block @b(%x: f32[b]) -> f32[h] { return %x }";
        "Return values of these types.";
    111 SectionShape "a section of the wrong shape":
        "I takes one cotangent per float result, of the result's type. W is made of `+=` statements whose results are gradients.";
        "I(%y.d: f32[b]): where the result is f32[b, h]";
        "Give the section the arguments and statements of its kind.";
    112 BadAccumulation "an accumulation that does not fit":
        "`+=` stands only in W. Its result is the gradient of a parameter, `%w.grad`, of the parameter's sizes in f32, and each gradient has exactly one.";
        "%w.gradient: f32[h] += reduce_sum(%dy, eq=\"b h -> h\")";
        "Name the result after the parameter and accumulate once; add before.";
    113 BadRepeat "a repeat that does not fit":
        "The range of a repeat is not empty and lies within the parameter arrays that it indexes.";
        "repeat i in 0..33 @layer(%x; %layer[i])   with %layer[32]";
        "Shorten the range, or declare more.";
    201 UnknownAxis "an axis that the mesh does not have":
        "Axes in braces and after `$` are axes or groups of the `mesh` line.";
        "%x: f32[b{dpp}]";
        "Correct the name, or add the axis to the mesh.";
    202 AxisTwice "an axis used twice":
        "A tensor uses an axis at most once: on one dim, or on its storage, or for what is owed.";
        "%x: f32[b{tp}, h{tp}]";
        "Take it off one of them.";
    203 StorageOverlap "a storage axis that already shards a dim":
        "The storage axes cut what a rank holds after the dims are sharded, so they must be other axes.";
        "%w: f32[h{dp}, f]/{dp}";
        "Use the axis in one place.";
    204 UnevenExact "an exact dim that the axes do not divide":
        "Heads and experts cannot be cut: a dim marked `exact` must be a multiple of the product of its axes. All other dims may be uneven.";
        "dims [g exact=6] with %q: f32[g{tp}] and tp=4";
        "Choose a degree that divides the dim.";
    205 AxesAboveDim "more devices than elements":
        "The product of the axes on a dim is above its size: some devices would never have anything.";
        "%x: f32[4{tp}]   with tp=8";
        "Use fewer axes on this dim.";
    206 PipelineOnDim "the pipeline axis on a tensor":
        "`pp` divides the model's calls into stages. It never shards a tensor.";
        "%x: f32[b{pp}]";
        "Use another axis.";
    207 CountedSharded "a sharded dim of unknown size":
        "A dim whose size only the run knows is never sharded, gathered or merged.";
        "%x: f32[c<=64(%n){tp}]";
        "Shard another dim.";
    208 RuleViolated "a sharding that the op cannot have":
        "The op's rule says which dims of its tensors go together, and which must stay whole. The statement's types do not follow it.";
        "%y: f32[b, f] = einsum(%x, %w, ..)   where %w is f32[h, f{tp}]";
        "Shard the tensors as the rule says, or put a collective or a reshard between.";
    209 PendingSum "a sum that is still owed":
        "Only linear ops take an operand whose partial sums have not been added up yet, and their results owe the sum in turn.";
        "%y: f32[b] = silu(%x)   where %x owes a sum over {tp}";
        "Pay it first: all_reduce or reduce_scatter.";
    210 BadCollective "a collective that does not fit":
        "A collective takes axes from, or puts axes on, the minor end of a dim, and pays only what is owed. The result's type follows.";
        "all_gather(%x, dim=0, over={tp})   where dim 0 is sharded over {dp}";
        "Name the dim and the axes that the operand has.";
    211 UnknownSeedDim "a seed rule with an unknown dim":
        "A rule such as `tp: g, f, v` names dims of the `dims` table, which all shardings start from.";
        "tp: heads";
        "Use a dim of the model.";
    212 BadMesh "a mesh that does not hold":
        "Axes and groups have names of their own, axes at least one device, groups at least one axis.";
        "mesh @m = [dp=2, dp=4]";
        "Rename the axis, or give it a size.";
    213 BadStorage "a storage that the op cannot have":
        "Only ops whose tensors all have the same shape work on stored runs, and then all of them are stored the same.";
        "%y: f32[b, f] = einsum(%x, %w, ..)   where %w is stored /{dp}";
        "Gather the parameter first.";
    214 BoundaryLayout "a layout that changes at a call":
        "What a call passes is laid out as the block's head says.";
        "%y = call @layer(%x)   where %x leaves @embed as b{dp} and @layer takes b{dp}, s{tp}";
        "Make both heads agree.";
    301 ConfigMissingField "a field that is missing":
        "A model's config.json lacks a field that its family needs.";
        "{ \"model_type\": \"llama\" }";
        "Add the field.";
    302 ConfigContradiction "fields that contradict each other":
        "Two fields cannot both hold, such as a hidden size that the heads do not divide.";
        "\"hidden_size\": 4096, \"num_attention_heads\": 30";
        "Correct one of the fields.";
    303 UnsupportedFamily "a model family that is not supported":
        "The `model_type` is none of the families that have a builder.";
        "\"model_type\": \"mamba\"";
        "Use a supported family, or write the model as a .ir file.";
    304 UnsupportedOption "a model option that is not supported":
        "The family is known, but the config asks for a variant that the builder does not have. It would be wrong to leave it out in silence.";
        "\"sliding_window\": 4096";
        "Turn the option off if the model permits it.";
    305 ConfigSyntax "a config that cannot be read":
        "The file is no JSON object, or a field has the wrong type.";
        "\"hidden_size\": \"big\"";
        "Correct the file.";
    306 UnknownModel "an unknown model":
        "The name is no preset and no file. `meshwright models` lists the presets.";
        "meshwright train lama3-8b";
        "Correct the name or the path.";
    401 NothingFits "no plan fits":
        "Every layout that was tried needs more memory than a device has, or breaks a constraint.";
        "--gpus 1 --seq 131072 for a 405B model";
        "Use more devices, shorter sequences, or take pins away.";
    402 ImpossibleDegrees "degrees whose product is not the number of devices":
        "dp, tp, pp and cp together use each device exactly once.";
        "--gpus 8 --layout tp=3";
        "Choose degrees whose product is the number of devices.";
    403 BatchDoesNotDivide "a batch that cannot be split so":
        "The global batch is data-parallel degree x micro-batch x number of micro-batches, all whole.";
        "--global-batch 10 --mbs 4";
        "Change the batch or the micro-batch.";
    404 PinConflict "pins that exclude each other":
        "A pin always holds, so two that exclude each other leave no plan.";
        "--pin tp=8,tp=4";
        "Take one away.";
    405 TooManyStages "more stages than block runs":
        "Every stage has at least one run of a block.";
        "--mesh pp=8 for a model of 4 layers";
        "Use fewer stages.";
    501 Deadlock "rows that wait for each other":
        "After some actions no rank can go on: each waits for what another does later.";
        "rank 0: 0B0 0F0";
        "Move the action that the others wait for to the front.";
    502 MissingAction "an action that is missing or doubled":
        "Each stage does F and B, or F, I and W, exactly once for each micro-batch.";
        "rank 0: 0F0 0F0 0B0";
        "Add or remove the action.";
    503 UnknownSchedule "an unknown kind of schedule":
        "`meshwright schedules` lists the kinds.";
        "--kind 2f2b";
        "Correct the name.";
    504 UnsuitedSchedule "a schedule that does not suit the numbers":
        "The kind needs other stages, chunks or micro-batches, such as at least one micro-batch per stage.";
        "--kind interleaved --chunks 1";
        "Change the numbers as the message says.";
    505 OrderViolated "an action before what it needs":
        "F of a stage needs F of the stage before; I needs F and the I of the stage after; W needs I; R needs all W, N all R, U needs N.";
        "rank 0: 0I0 0F0";
        "Reorder the row.";
    506 MemoryLimit "a schedule above the memory limit":
        "A rank would hold more kept activations at a time than the limit allows.";
        "--kind gpipe --memory-limit 2";
        "Choose a schedule that holds less, or raise the limit.";
    507 BadCosts "costs that do not fit the schedule":
        "Times and memory are finite and not negative; a list has one number per stage, a limit one per rank; memory taken by F is what I and W free.";
        "{\"f\": [1, 2]}   for 4 stages";
        "Give one number for all stages, or as many as there are.";
    601 ProgramInvalid "a program that breaks an invariant":
        "The program checker runs all rows symbolically: registers, messages, bundles and collectives must match. A program made by `emit` that fails is a fault of ours.";
        "a send whose receive has another type";
        "Report it with the dump; a hand-written program must be corrected.";
    602 NoKernel "an op without a kernel in a program":
        "A program holds only ops that have a kernel; all others have been expanded before.";
        "%y: f32[] = clip_factor(%n, max=1.0)";
        "Compile from an earlier level.";
    603 NotPlanned "a model that is not planned":
        "A program is made of a differentiated model whose shardings are closed and whose collectives are placed.";
        "%x: f32[b{?}]";
        "Compile the model from level 1.";
    701 DataMissing "data that is not there":
        "The path given with --data does not exist or cannot be read.";
        "--data no/such/file.txt";
        "Correct the path.";
    702 DataEmpty "data without content":
        "The path exists but holds no tokens.";
        "--data empty.txt";
        "Give a file or folder with text.";
    703 DataTooSmall "less data than one sequence needs":
        "The tokens do not fill a sequence of the length asked for, with the token that follows it.";
        "--seq 4096 with a file of 100 bytes";
        "Use more data or shorter sequences.";
    704 PrecisionRefused "training in bf16 is refused":
        "Training in bf16 is not supported by this backend: rather than train in f32 in silence, or badly, it stops.";
        "--precision bf16";
        "Train with --precision f32.";
    705 CheckpointMismatch "a checkpoint of another run":
        "A run goes on from a checkpoint with the same model, text, held-out fraction, sequence length, global batch, optimizer, precision and seed; only then is what follows a continuation. The layout, the number of steps, learning rate, clipping and whatever concerns output may change.";
        "meshwright train tiny-llama --data other.txt --resume out";
        "Take the options of the run, as `--resume` alone does, or start anew with another --out.";
    706 NotFinite "a loss that is not finite":
        "The loss or the gradient norm became NaN or infinite, so that going on would spoil the parameters.";
        "--lr 100";
        "Lower the learning rate, or start from the last checkpoint.";
    707 RankFailed "a device that failed":
        "One rank stopped with an error and the others were woken. The first to fail is named.";
        "a thread that ran out of memory";
        "See the cause that is named with the rank.";
    708 NotATextModel "a model that does not read text":
        "Training feeds token ids `%tok`, labels `%lab`, positions `%pos` and segments `%seg`, each i32[b, s], with ids below 257: the bytes and an end of document. A model with other inputs or a smaller vocabulary cannot be trained so.";
        "model @m(%image: input f32[b, h]) { .. }";
        "Use those inputs, or a vocabulary of at least 257.";
    720 CheckpointMissing "no checkpoint where one was asked for":
        "The path given with --resume is neither a checkpoint nor the folder of a run that has one. A run has checkpoints only with --save-every.";
        "meshwright train tiny-llama --resume";
        "Correct the path, or leave out --resume to start at the first step.";
    721 CheckpointDamaged "a damaged checkpoint":
        "Every file of a checkpoint has a size and a checksum, and one of them differs: the file was cut off, changed or removed after it was written. A checkpoint is never used in part.";
        "truncate --size=-1 out/step-00000120/data-0000.safetensors";
        "Resume from the older checkpoint that the message names.";
    722 CheckpointVersion "a checkpoint of an unknown format":
        "The manifest names a format that this version cannot read: another version of the program wrote it.";
        "{\"schema\": \"meshwright.checkpoint/2\"}";
        "Resume with the version that wrote it.";
    723 CheckpointUnwritable "a checkpoint that cannot be written":
        "The operating system refused to write, most often because the disk is full. The checkpoints before it are as they were.";
        "--save-every 10 on a full disk";
        "Make room, or let fewer checkpoints stay (--keep-last); --resume goes on from the last one.";
    724 RunHasCheckpoints "a run that would mix with another one":
        "The folder of the run holds checkpoints of an earlier one. To start anew there would leave two runs in one folder, and --resume could not tell them apart.";
        "meshwright train tiny-llama   after a run with --save-every 100";
        "Go on with --resume, choose another --out, or remove the old checkpoints.";
    801 FileUnreadable "a file that cannot be read or written":
        "The operating system refuses the path.";
        "meshwright compile nosuch.ir";
        "Correct the path or its rights.";
    802 UnknownPass "an unknown pass":
        "`--stop-after` takes the name of a pass; `meshwright passes` lists them.";
        "--stop-after reshart";
        "Correct the name.";
    803 ConflictingOptions "options that exclude each other":
        "Two options say different things about the same, such as a file with a mesh and --mesh.";
        "meshwright compile sharded.ir --mesh tp=2";
        "Leave one of them out.";
    804 UnknownCode "a code that does not exist":
        "`--explain` takes a code such as MW0209.";
        "meshwright --explain MW9999";
        "Copy the code from the message.";
    805 BadOption "an option that cannot be read":
        "The option's value does not have the form that its help shows.";
        "--mesh tp";
        "Write name=number pairs: --mesh dp=2,tp=2.";
    806 NotInThisVersion "something that this version does not have yet":
        "The option is understood, but nothing here carries it out. It is refused rather than left out in silence.";
        "--mesh cp=2";
        "Leave it out.";
    807 RequestUnreadable "a request that cannot be read":
        "A request in JSON, or a run.toml, has the fields of the verb's long options, with `_` for `-`, each of its type, and no others.";
        "global-batch = \"many\"";
        "Correct the field that the message names.";
}

impl Code {
    /// The row of the code.
    pub fn entry(self) -> &'static Entry {
        &CATALOGUE[self as usize]
    }

    /// The code of a text such as `MW0209` or `209`.
    pub fn from_text(text: &str) -> Option<Code> {
        let digits = text.trim_start_matches(['M', 'W', 'm', 'w']);
        let number: u16 = digits.parse().ok()?;
        CATALOGUE.iter().find(|entry| entry.number == number).map(|entry| entry.code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MW{:04}", self.entry().number)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}\n\n{}\n", self.code, self.title, self.explanation)?;
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
        assert_eq!(Code::from_text("MW9999"), None);
    }
}
