//! Functions and constants that the lines of a kernel name: each is written once.

use crate::scalar::Strides;
use std::fmt::Write;

#[derive(Default)]
pub(super) struct Tables {
    text: String,
    places: Vec<Strides>,
    turns: Vec<Vec<f64>>,
    paths: Vec<String>,
}

impl Tables {
    /// The text of all of them.
    pub(super) fn text(self) -> String {
        self.text
    }

    /// The function from an index of a tensor to one of another, with all sizes in the text.
    pub(super) fn place(&mut self, strides: &Strides) -> String {
        let (number, is_new) = number(&mut self.places, strides);
        if is_new {
            // A division in 32 bits takes a fraction of the time of one in 64.
            let elements: usize = strides.dims.iter().map(|dim| dim.0).product();
            let integer = if u32::try_from(elements).is_ok() { "unsigned int" } else { "unsigned long long" };
            let mut text = format!("FUNCTION unsigned long long place{number}(unsigned long long index) {{\n");
            text += &format!("    {integer} rest = ({integer})index;\n");
            text += &format!("    unsigned long long place = {}ull;\n", strides.offset);
            for &(size, stride) in strides.dims.iter().rev() {
                // Nothing asks for an element of an empty tensor, but its text must not divide by 0.
                let size = size.max(1);
                text += &format!("    place += rest % {size}u * {stride}ull;\n    rest /= {size}u;\n");
            }
            self.text += &format!("{text}    return place;\n}}\n\n");
        }
        format!("place{number}")
    }

    /// The array of some turns.
    pub(super) fn turns(&mut self, turns: &Vec<f64>) -> String {
        let (number, is_new) = number(&mut self.turns, turns);
        if is_new {
            let list: Vec<String> = turns.iter().map(|turn| format!("{turn:?}")).collect();
            // An array has an element at least.
            let list = if list.is_empty() { "0.0".to_string() } else { list.join(", ") };
            let _ = writeln!(self.text, "static __device__ const double turns{number}[] = {{{list}}};\n");
        }
        format!("turns{number}")
    }

    /// The variable of the key of a path, and its line if it is new.
    pub(super) fn key(&mut self, path: &String) -> (String, Option<String>) {
        let (number, is_new) = number(&mut self.paths, path);
        if !is_new {
            return (format!("key{number}"), None);
        }
        let bytes: Vec<String> = path.bytes().chain([0]).map(|byte| byte.to_string()).collect();
        let _ =
            writeln!(self.text, "static __device__ const unsigned char path{number}[] = {{{}}};\n", bytes.join(", "));
        let random = "random[0], random[1], index";
        let line = format!("unsigned long long key{number} = key({random}, path{number}, {}u);", path.len());
        (format!("key{number}"), Some(line))
    }
}

/// The number of an item among those of a list, and true if it was not there.
fn number<T: Clone + PartialEq>(items: &mut Vec<T>, item: &T) -> (usize, bool) {
    match items.iter().position(|known| known == item) {
        Some(number) => (number, false),
        None => {
            items.push(item.clone());
            (items.len() - 1, true)
        }
    }
}
