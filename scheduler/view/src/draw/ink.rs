//! Colours: those of the zero-bubble papers and of PyTorch, with hatching for readers who cannot tell colours apart.

use super::Hue;
use std::fmt;

/// A colour of the screen, printed as `#2a62b8`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Colour {
    red: u8,
    green: u8,
    blue: u8,
}

impl Colour {
    const fn new(rgb: u32) -> Colour {
        Colour { red: (rgb >> 16) as u8, green: (rgb >> 8) as u8, blue: rgb as u8 }
    }

    /// Red, green and blue.
    pub(super) fn channels(self) -> [u8; 3] {
        [self.red, self.green, self.blue]
    }

    /// The colour between this one and another.
    fn mixed(self, other: Colour, share: f64) -> Colour {
        Colour {
            red: between(self.red, other.red, share),
            green: between(self.green, other.green, share),
            blue: between(self.blue, other.blue, share),
        }
    }

    /// True if white text is easier to read on the colour than black: by relative luminance (WCAG 2.1, contrast ratio).
    pub(super) fn takes_white(self) -> bool {
        let luminance = 0.2126 * linear(self.red) + 0.7152 * linear(self.green) + 0.0722 * linear(self.blue);
        1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05
    }
}

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Colour { red, green, blue } = self;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

fn between(from: u8, to: u8, share: f64) -> u8 {
    (f64::from(from) + share * (f64::from(to) - f64::from(from))).round() as u8
}

/// The linear intensity of a channel of sRGB.
fn linear(channel: u8) -> f64 {
    let share = f64::from(channel) / 255.0;
    if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
}

/// The darkest and the lightest colour of a hue; a rank's first stage has the darkest.
fn ends(hue: Hue) -> [Colour; 2] {
    let ends = match hue {
        Hue::F => [0x2a62b8, 0xa9cbf5],
        Hue::I => [0x0f7c7c, 0x9addd8],
        Hue::W => [0x2f7a35, 0xaedba6],
        Hue::B => [0xb55a0c, 0xf8c88c],
        Hue::P => [0x6b42a3, 0xcfbaec],
        Hue::X => [0x666666, 0xcccccc],
    };
    ends.map(Colour::new)
}

/// The colour of a bar.
pub(super) fn fill(hue: Hue, shade: f64) -> Colour {
    let [dark, light] = ends(hue);
    dark.mixed(light, shade)
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
            assert!(fill(hue, 0.0).takes_white() && !fill(hue, 1.0).takes_white(), "{hue:?}");
        }
    }
}
