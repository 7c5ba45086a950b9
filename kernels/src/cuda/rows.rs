//! Kernels that reduce rows or sum over them: a team of threads takes a row at a time.
//!
//! A team is a warp or a block, as long as the row is; each thread has the same columns of every row. The loops over a row are as many as
//! its reductions need one after the other, and what a later loop reads of an earlier one is saved in registers. A row that is too long for
//! that is swept again from memory. Where rows have whole vectors, a thread has 16 bytes of neighbours at a time. All that is written of a row is written in the last loop, so that a result may be in the place of an
//! input that is read in order.
//!
//! For sums over rows a team takes a chunk of rows and adds them in order; a second kernel adds the chunks, each warp of a block a slice of
//! them in order, and then the slices. So no sum depends on the number of blocks that there are.

use super::kernel::{ADDS, CHUNKS, Kernel, SLICES, Threads, WARP, indented, parameters};
use super::loops::{Loops, Phase, needed};
use super::scope::{COLUMN, ELEMENT, IS_ALIGNED, ROW, SAVED, VECTOR, are_used};
use super::spell::spelling;
use crate::group::{Node, Program, Reduction};

/// The most threads of a block.
const BLOCK: usize = 1024;
/// Threads of a block of several teams, or of a team that shares its rows with others.
const WARPS: usize = 256;
/// Elements that a thread saves in registers: half of what it has in a block of [`BLOCK`] threads, on a multiprocessor of 65536 (CUDA C++
/// Programming Guide, "Technical Specifications per Compute Capability").
const REGISTERS: usize = 32;
/// Columns of a team that shares its rows with others.
const COLUMNS: usize = 1024;
/// Chunks beyond which they have more rows instead, and the fewest rows of a chunk: a multiprocessor has several chunks at a time where there
/// are some thousand rows, and chunks are a fraction of what they are made of.
const CHUNKS_AT_MOST: usize = 512;
const CHUNK: usize = 4;

/// The kernel of a program by rows.
///
/// # Errors
/// Its rows differ, it reads other rows than the present one, or they are too long to be reduced and summed over.
pub(super) fn kernel(program: &Program) -> Result<Kernel, String> {
    let space = space(program)?;
    let wide = wide(program, space[0], space[1]);
    let mut loops = Loops::new(program, space, wide, true)?;
    let sums = loops.sums.iter().filter(|sum| sum.of_row.is_none()).count();
    let mut team = Team::new(space[1], wide, loops.reduces(), loops.live() + sums);
    if !team.fits {
        (loops, team) = (Loops::new(program, space, wide, false)?, Team::new(space[1], wide, true, sums));
    }
    // Without sums a thread saves no element.
    match sums == 0 || team.fits {
        true => Ok(Rows::new(program, space, team, &loops).kernel(loops)),
        false => Err(format!("rows of {} elements are too long to be reduced and summed over", space[1])),
    }
}

/// The number of rows, and their elements.
fn space(program: &Program) -> Result<[usize; 2], String> {
    let mut reduced: Vec<[usize; 2]> = Vec::new();
    for value in needed(program) {
        if let Node::Reduce(_, _, width) = program.values[value].node {
            reduced.push([program.values[value].len, width]);
        }
    }
    let lens: Vec<usize> = program.outs.iter().map(|out| program.values[out.value].len).collect();
    let sums = program.outs.iter().zip(&lens).filter_map(|(out, len)| out.columns.map(|width| [len / width, width]));
    let sums: Vec<[usize; 2]> = sums.collect();
    let longest = lens.iter().max().copied().unwrap_or(0);
    let rows = match (reduced.first(), sums.first()) {
        (Some([rows, _]), _) | (None, Some([rows, _])) => *rows,
        (None, None) => lens.iter().min().copied().unwrap_or(0),
    };
    let summed = sums.iter().map(|sum| sum[1]).max().unwrap_or(0);
    let width = reduced.first().map_or(summed.max(longest / rows.max(1)), |space| space[1]);
    let is_one = reduced.iter().all(|space| *space == [rows, width])
        && sums.iter().all(|[of, columns]| *of == rows && (*columns == width || *columns == 1))
        && lens.iter().all(|&len| len == rows || len == rows * width);
    if is_one { Ok([rows, width]) } else { Err("its rows differ".to_string()) }
}

/// Elements of a vector: 16 bytes of the narrowest tensor, or 8, if rows have whole ones, at least one for each thread of a warp.
fn wide(program: &Program, rows: usize, width: usize) -> usize {
    let outs = program.outs.iter().filter(|out| out.columns.is_none()).map(|out| (out.value, out.element));
    let all = program.inputs().map(|input| (input, program.values[input].element)).chain(outs);
    let of_elements = all.filter(|(value, _)| program.values[*value].len == rows * width);
    let least = of_elements.map(|(_, element)| element.bytes()).min().unwrap_or(16);
    let mut whole = [8, 4].into_iter().filter(|&wide| wide <= 16 / least && width.is_multiple_of(wide));
    whole.find(|wide| width / wide >= WARP).unwrap_or(1)
}

/// The threads that work on a row.
#[derive(Clone, Copy)]
struct Team {
    threads: usize,
    /// Elements of a thread.
    each: usize,
    /// Teams that share a row.
    slabs: usize,
    /// True if the elements that a thread saves are few enough.
    fits: bool,
}

impl Team {
    /// The team for rows, of which a thread saves the elements of a number of values.
    fn new(width: usize, wide: usize, reduces: bool, values: usize) -> Team {
        let vectors = width / wide;
        if !reduces {
            let threads = vectors.clamp(WARP, WARPS).next_power_of_two();
            let each = vectors.min(COLUMNS / wide).div_ceil(threads).max(1) * wide;
            let slabs = width.div_ceil(threads * each).max(1);
            return Team { threads, each, slabs, fits: each * values <= REGISTERS };
        }
        let (mut threads, mut each) = (WARP, vectors.div_ceil(WARP).max(1) * wide);
        while threads < BLOCK && each * values.max(1) > REGISTERS {
            threads *= 2;
            each = vectors.div_ceil(threads).max(1) * wide;
        }
        Team { threads, each, slabs: 1, fits: each * values <= REGISTERS }
    }

    /// Teams of a block.
    fn of_block(self) -> usize {
        if self.threads == WARP { WARPS / WARP } else { 1 }
    }
}

/// The text of a kernel by rows.
struct Rows<'a> {
    program: &'a Program,
    space: [usize; 2],
    team: Team,
    /// Rows of a chunk.
    chunk: usize,
    /// Sums of a chunk.
    columns: usize,
}

impl<'a> Rows<'a> {
    fn new(program: &'a Program, space: [usize; 2], team: Team, loops: &Loops<'_>) -> Rows<'a> {
        let columns = loops.sums.iter().map(|sum| sum.width).sum();
        let chunk = if loops.sums.is_empty() { 1 } else { space[0].div_ceil(CHUNKS_AT_MOST).next_multiple_of(CHUNK) };
        Rows { program, space, team, chunk, columns }
    }

    fn chunks(&self) -> usize {
        self.space[0].div_ceil(self.chunk.max(1))
    }

    fn kernel(&self, loops: Loops<'_>) -> Kernel {
        let Team { threads, slabs, .. } = self.team;
        let (of_block, teams) = (self.team.of_block(), self.chunks() * slabs);
        let partials = self.chunks() * self.columns;
        let others: &[&str] = if loops.sums.is_empty() { &[] } else { &["float* partials"] };
        let mut text = format!(
            "{} {{\n",
            parameters(self.program, &format!("__launch_bounds__({}) ", threads * of_block), others)
        );
        indented(&mut text, 1, &self.head(&loops));
        indented(&mut text, 1, &loops.once);
        indented(&mut text, 1, &self.team_loop(&loops));
        text += "}\n";
        if !loops.sums.is_empty() {
            text += &self.add_chunks(&loops);
        }
        let mut apart = loops.scope.apart.clone();
        if slabs > 1 && !loops.of_row.is_empty() {
            apart.extend(0..self.program.inputs().count());
        }
        let shape = Threads { block: (threads * of_block) as u32, elements: None, teams, of_block };
        let apart = apart.into_iter().collect();
        let is_narrow = self.space[1] < WARP && !loops.reduces() && loops.sums.is_empty();
        Kernel { source: loops.scope.tables() + &text, shape, partials, apart, is_narrow }
    }

    /// The number of the team, and of the thread in it.
    fn head(&self, loops: &Loops<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        if self.team.threads > WARP && loops.reduces() {
            lines.push("__shared__ float parts[32];".to_string());
        }
        let (lane, team) = match self.team.of_block() {
            1 => ("threadIdx.x".to_string(), "blockIdx.x".to_string()),
            of => (
                format!("threadIdx.x % {WARP}"),
                format!("(unsigned long long)blockIdx.x * {of} + threadIdx.x / {WARP}"),
            ),
        };
        if !loops.aligned.is_empty() {
            let addresses: Vec<String> =
                loops.aligned.iter().map(|name| format!("(unsigned long long){name}")).collect();
            lines.push(format!("int {IS_ALIGNED} = ({}) % 16 == 0;", addresses.join(" | ")));
        }
        lines.push(format!("unsigned int lane = {lane};"));
        lines.push(format!(
            "unsigned long long first = {team}, teams = (unsigned long long)gridDim.x * {};",
            self.team.of_block()
        ));
        lines
    }

    /// The loop over the chunks of a team.
    fn team_loop(&self, loops: &Loops<'_>) -> Vec<String> {
        let Team { threads, each, slabs, .. } = self.team;
        let total = self.chunks() * slabs;
        let mut lines = vec![format!("for (unsigned long long team = first; team < {total}ull; team += teams) {{")];
        let chunk = if slabs > 1 { format!("team / {slabs}u") } else { "team".to_string() };
        let mut body = Vec::new();
        if slabs > 1 {
            body.push(format!(
                "unsigned long long from = lane + team % {slabs}u * {}ull;",
                threads * each / loops.wide
            ));
        }
        for sum in &loops.sums {
            body.push(match sum.of_row {
                Some(_) => format!("float sum{} = 0.0f;", sum.out),
                None => format!("float sum{}[{each}] = {{0.0f}};", sum.out),
            });
        }
        let ([rows, _], size) = (self.space, self.chunk);
        let least = format!("start + {size} < {rows}ull ? start + {size} : {rows}ull");
        body.push(format!("unsigned long long start = {chunk} * {size}, end = {least};"));
        body.push(format!("for (unsigned long long {ROW} = start; {ROW} < end; {ROW}++) {{"));
        body.extend(self.row(loops).iter().map(|line| format!("    {line}")));
        body.push("}".to_string());
        body.extend(self.leave_chunk(loops, &chunk));
        lines.extend(body.iter().map(|line| format!("    {line}")));
        lines.push("}".to_string());
        lines
    }

    /// The loops over a row.
    fn row(&self, loops: &Loops<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        for (value, _) in &loops.saved {
            let number = spelling(self.program.values[*value].element).number;
            lines.push(format!("{number} {SAVED}{value}[{}];", self.team.each));
        }
        for phase in &loops.phases {
            self.phase(phase, loops.wide, &mut lines);
        }
        for sum in &loops.sums {
            lines.extend(sum.of_row.iter().map(|value| format!("sum{} += {value};", sum.out)));
        }
        if !loops.of_row.is_empty() {
            // All threads of the team have read what is in the places of the results.
            let wait = if self.team.threads == WARP { "__syncwarp();" } else { "__syncthreads();" };
            let is_first = if self.team.slabs > 1 { "from == 0" } else { "lane == 0" };
            lines.extend([wait.to_string(), format!("if ({is_first}) {{")]);
            lines.extend(loops.of_row.iter().map(|line| format!("    {line}")));
            lines.push("}".to_string());
        }
        lines
    }

    fn phase(&self, phase: &Phase, wide: usize, lines: &mut Vec<String>) {
        lines.extend(phase.row.iter().cloned());
        for reduced in &phase.reduced {
            lines.push(match reduced.kind {
                Reduction::Sum => format!("float r{} = 0.0f;", reduced.value),
                Reduction::Max => format!("float r{} = __uint_as_float(0xff800000u);", reduced.value),
            });
        }
        let mut element = phase.element.clone();
        for reduced in &phase.reduced {
            let (value, of) = (reduced.value, &reduced.of);
            element.push(match reduced.kind {
                Reduction::Sum => format!("r{value} += {of};"),
                Reduction::Max => format!("r{value} = larger(r{value}, {of});"),
            });
        }
        if !element.is_empty() {
            lines.extend(self.element_loop(wide, &element, &phase.around[0], &phase.around[1]));
        }
        for reduced in &phase.reduced {
            let kind = if reduced.kind == Reduction::Sum { "sum" } else { "max" };
            let (value, threads) = (reduced.value, self.team.threads);
            lines.push(match threads {
                WARP => format!("r{value} = warp_{kind}(r{value});"),
                _ => format!("r{value} = block_{kind}(r{value}, parts, {}u);", threads / WARP),
            });
        }
    }

    /// The loop of a thread over its elements of a row, one by one or by vectors.
    fn element_loop(&self, wide: usize, element: &[String], before: &[String], behind: &[String]) -> Vec<String> {
        let Team { threads, each, slabs, .. } = self.team;
        let [_, width] = self.space;
        let from = if slabs > 1 { "from" } else { "lane" };
        let unroll = match (each <= REGISTERS, wide) {
            (true, _) => "#pragma unroll",
            (false, 1) => "#pragma unroll 4",
            (false, _) => "#pragma unroll 2",
        };
        let index = are_used(element, ELEMENT)
            .then(|| format!("unsigned long long {ELEMENT} = {ROW} * {width}ull + {COLUMN};"));
        let mut lines = vec![unroll.to_string()];
        if wide == 1 {
            lines.push(format!("for (unsigned int k = 0; k < {each}; k++) {{"));
            lines.push(format!("    unsigned long long {COLUMN} = {from} + k * {threads};"));
            lines.push(format!("    if ({COLUMN} < {width}ull) {{"));
            lines.extend(index.iter().chain(element).map(|line| format!("        {line}")));
        } else {
            lines.push(format!("for (unsigned int vector = 0; vector < {}; vector++) {{", each / wide));
            lines.push(format!("    unsigned long long {VECTOR} = ({from} + vector * {threads}) * {wide};"));
            lines.push(format!("    if ({VECTOR} < {width}ull) {{"));
            lines.extend(before.iter().map(|line| format!("        {line}")));
            lines.push("        #pragma unroll".to_string());
            lines.push(format!("        for (unsigned int p = 0; p < {wide}; p++) {{"));
            lines.push(format!("            unsigned int k = vector * {wide} + p;"));
            lines.push(format!("            unsigned long long {COLUMN} = {VECTOR} + p;"));
            lines.extend(index.iter().chain(element).map(|line| format!("            {line}")));
            lines.push("        }".to_string());
            lines.extend(behind.iter().map(|line| format!("        {line}")));
        }
        lines.extend(["    }".to_string(), "}".to_string()]);
        lines
    }

    /// The lines that write the sums of a chunk.
    fn leave_chunk(&self, loops: &Loops<'_>, chunk: &str) -> Vec<String> {
        let (mut element, mut lines) = (Vec::new(), Vec::new());
        for sum in &loops.sums {
            let place = format!("partials[({chunk}) * {} + {}", self.columns, sum.column);
            match sum.of_row {
                None => element.push(format!("{place} + {COLUMN}] = sum{}[k];", sum.out)),
                Some(_) if self.team.slabs > 1 => lines.push(format!("if (from == 0) {place}] = sum{};", sum.out)),
                Some(_) => lines.push(format!("if (lane == 0) {place}] = sum{};", sum.out)),
            }
        }
        if !element.is_empty() {
            lines.extend(self.element_loop(loops.wide, &element, &[], &[]));
        }
        lines
    }

    /// The kernel that adds up chunks.
    fn add_chunks(&self, loops: &Loops<'_>) -> String {
        let outs: Vec<String> = loops
            .sums
            .iter()
            .map(|sum| format!("    {}* out{},\n", spelling(self.program.outs[sum.out].element).scalar, sum.out))
            .collect();
        let mut text = format!(
            "\nextern \"C\" __global__ void __launch_bounds__({}) {CHUNKS}(\n    const float* partials,\n{}    unsigned long long {ADDS}\n) {{\n",
            SLICES * WARP,
            outs.concat()
        );
        let each = self.chunks().div_ceil(SLICES);
        let mut lines = vec![
            format!("__shared__ float slices[{}];", SLICES * WARP),
            format!("unsigned int lane = threadIdx.x % {WARP}, slice = threadIdx.x / {WARP};"),
            format!(
                "unsigned int start = slice * {each}, end = start + {each} < {0}u ? start + {each} : {0}u;",
                self.chunks()
            ),
        ];
        for sum in &loops.sums {
            let (out, suffix) = (sum.out, spelling(self.program.outs[sum.out].element).suffix);
            let held = match self.program.outs[out].adds {
                true => format!("{ADDS} >> {out} & 1 ? load_{suffix}(out{out}[{COLUMN}]) : 0.0f"),
                false => "0.0f".to_string(),
            };
            let (width, place) = (sum.width, format!("(unsigned long long)i * {} + {}", self.columns, sum.column));
            let text = format!(
                "for (unsigned long long base = (unsigned long long)blockIdx.x * {WARP}; base < {width}ull; base += (unsigned long long)gridDim.x * {WARP}) {{
    unsigned long long {COLUMN} = base + lane;
    float sum = 0.0f;
    if ({COLUMN} < {width}ull) {{
        #pragma unroll 8
        for (unsigned int i = start; i < end; i++) sum += partials[{place} + {COLUMN}];
    }}
    slices[threadIdx.x] = sum;
    __syncthreads();
    if (slice == 0 && {COLUMN} < {width}ull) {{
        sum = {held};
        #pragma unroll
        for (unsigned int i = 0; i < {SLICES}; i++) sum += slices[i * {WARP} + lane];
        out{out}[{COLUMN}] = store_{suffix}(sum);
    }}
    __syncthreads();
}}"
            );
            lines.extend(text.lines().map(str::to_string));
        }
        indented(&mut text, 1, &lines);
        text + "}\n"
    }
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
