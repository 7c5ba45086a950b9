//! Aligned columns.

/// Formats a header and rows. Each column has the width of its widest cell; the last column is not padded.
pub fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = line(head, widths);
    for row in rows {
        text += &line(row.each_ref().map(String::as_str), widths);
    }
    text
}

fn line<const N: usize>(cells: [&str; N], widths: [usize; N]) -> String {
    let padded: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
    format!("{}\n", padded.join("  ").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["gpt2".to_string(), "1".to_string()], ["x".to_string(), "22".to_string()]];
        assert_eq!(table(["name", "n"], &rows), "name  n\ngpt2  1\nx     22\n");
    }
}
