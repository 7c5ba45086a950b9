//! Colours: those of the zero-bubble papers and of PyTorch, with hatching for readers who cannot tell colours apart.

use super::Hue;

/// The darkest and the lightest colour of a hue, as red, green and blue; a rank's first stage has the darkest.
fn ends(hue: Hue) -> [[u8; 3]; 2] {
    match hue {
        Hue::F => [[0x2a, 0x62, 0xb8], [0xa9, 0xcb, 0xf5]],
        Hue::I => [[0x0f, 0x7c, 0x7c], [0x9a, 0xdd, 0xd8]],
        Hue::W => [[0x2f, 0x7a, 0x35], [0xae, 0xdb, 0xa6]],
        Hue::B => [[0xb5, 0x5a, 0x0c], [0xf8, 0xc8, 0x8c]],
        Hue::P => [[0x6b, 0x42, 0xa3], [0xcf, 0xba, 0xec]],
        Hue::X => [[0x66, 0x66, 0x66], [0xcc, 0xcc, 0xcc]],
    }
}

/// The colour of a bar.
pub(super) fn fill(hue: Hue, shade: f64) -> [u8; 3] {
    let [dark, light] = ends(hue);
    [0, 1, 2].map(|at| (f64::from(dark[at]) + shade * (f64::from(light[at]) - f64::from(dark[at]))).round() as u8)
}

/// True if white text is easier to read on a colour than black: by relative luminance (WCAG 2.1, contrast ratio).
pub(super) fn takes_white([red, green, blue]: [u8; 3]) -> bool {
    let linear = |channel: u8| {
        let share = f64::from(channel) / 255.0;
        if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
    };
    let luminance = 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
    1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05
}

pub(super) fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Meaning of a hue.
pub(super) fn meaning(hue: Hue) -> &'static str {
    match hue {
        Hue::F => "F forward",
        Hue::I => "I gradient of inputs",
        Hue::W => "W gradient of weights",
        Hue::B => "B backward, I and W in one",
        Hue::P => "overlapped pair",
        Hue::X => "other",
    }
}

/// All hues.
pub(super) const ALL: [Hue; 6] = [Hue::F, Hue::I, Hue::W, Hue::B, Hue::P, Hue::X];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stands_out_on_every_colour() {
        for hue in ALL {
            assert!(takes_white(fill(hue, 0.0)) && !takes_white(fill(hue, 1.0)), "{hue:?}");
        }
    }
}
