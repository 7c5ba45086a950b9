//! Reports of ranks, which the processes of a run share after each step, with a word of each process.

/// The reports of the ranks of one process.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Status {
    /// The choices of experts, and those of them that were dropped.
    pub(super) choices: [u64; 2],
    /// A word of the caller; of all processes the largest counts.
    pub(super) word: u8,
    /// True if a process works on something else too.
    pub(super) is_busy: bool,
    /// Numbers that ranks report, by name: the first rank that has a name counts.
    pub(super) outs: Vec<Out>,
    /// Seconds in which each rank did not wait for others.
    pub(super) seconds: Vec<(u32, f32)>,
}

/// A number that a rank reports.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Out {
    pub(super) rank: u32,
    pub(super) name: String,
    pub(super) value: f32,
}

impl Status {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![self.word, u8::from(self.is_busy)];
        self.choices.iter().for_each(|count| bytes.extend(count.to_le_bytes()));
        bytes.extend((self.seconds.len() as u32).to_le_bytes());
        for (rank, seconds) in &self.seconds {
            bytes.extend(rank.to_le_bytes());
            bytes.extend(seconds.to_le_bytes());
        }
        for Out { rank, name, value } in &self.outs {
            bytes.extend(rank.to_le_bytes());
            bytes.extend(value.to_le_bytes());
            bytes.extend((name.len() as u32).to_le_bytes());
            bytes.extend(name.as_bytes());
        }
        bytes
    }

    /// The status that another process has written; `None` if it is no status.
    pub(super) fn read(mut bytes: &[u8]) -> Option<Status> {
        fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
            let (head, rest) = bytes.split_at_checked(count)?;
            *bytes = rest;
            Some(head)
        }
        fn word(bytes: &mut &[u8]) -> Option<u32> {
            take(bytes, 4)?.try_into().map(u32::from_le_bytes).ok()
        }
        fn long(bytes: &mut &[u8]) -> Option<u64> {
            take(bytes, 8)?.try_into().map(u64::from_le_bytes).ok()
        }
        let [first, busy] = *take(&mut bytes, 2)? else { return None };
        let mut status = Status { word: first, is_busy: busy != 0, ..Status::default() };
        status.choices = [long(&mut bytes)?, long(&mut bytes)?];
        for _ in 0..word(&mut bytes)? {
            status.seconds.push((word(&mut bytes)?, f32::from_bits(word(&mut bytes)?)));
        }
        while !bytes.is_empty() {
            let (rank, value) = (word(&mut bytes)?, f32::from_bits(word(&mut bytes)?));
            let len = word(&mut bytes)? as usize;
            let name = String::from_utf8(take(&mut bytes, len)?.to_vec()).ok()?;
            status.outs.push(Out { rank, name, value });
        }
        Some(status)
    }

    /// The reports of all processes.
    pub(super) fn merge(all: impl IntoIterator<Item = Status>) -> Status {
        let mut merged = Status::default();
        for status in all {
            merged.choices.iter_mut().zip(status.choices).for_each(|(sum, count)| *sum += count);
            merged.word = merged.word.max(status.word);
            merged.is_busy |= status.is_busy;
            merged.outs.extend(status.outs);
            merged.seconds.extend(status.seconds);
        }
        merged.outs.sort_by_key(|out| out.rank);
        merged.seconds.sort_by_key(|(rank, _)| *rank);
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_first_rank_counts() {
        let out = |rank, value| Out { rank, name: "loss".to_string(), value };
        let one = Status {
            choices: [4, 1],
            word: 0,
            is_busy: true,
            outs: vec![out(2, 0.1 + 0.2), out(3, f32::MIN_POSITIVE)],
            seconds: vec![(2, 0.5)],
        };
        let two = Status {
            choices: [u64::from(u32::MAX) + 1, 0],
            word: 3,
            is_busy: false,
            outs: vec![out(1, -0.0)],
            seconds: vec![(1, 2.5)],
        };
        for status in [&one, &two, &Status::default()] {
            assert_eq!(Status::read(&status.write()).as_ref(), Some(status));
        }
        assert_eq!(Status::read(&one.write()[..20]), None);
        let merged = Status::merge([one, two]);
        assert_eq!((merged.choices, merged.word, merged.is_busy), ([u64::from(u32::MAX) + 5, 1], 3, true));
        assert_eq!(merged.seconds, [(1, 2.5), (2, 0.5)]);
        assert_eq!(merged.outs.iter().map(|out| out.rank).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
