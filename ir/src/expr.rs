//! Rank expressions: integers, mesh coordinates `$tp`, `+ - * / mod min max`.

use crate::ids::AxisId;
use crate::mesh::Mesh;
use cranelift_entity::EntityRef;

/// An operator of two expressions. Division and remainder are Euclidean.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BinaryExpr {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`
    Div,
    /// `a mod b`
    Mod,
    /// `min(a, b)`
    Min,
    /// `max(a, b)`
    Max,
}

/// An integer that may depend on the rank.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expr {
    /// A constant.
    Int(i64),
    /// The rank's coordinate along an axis.
    Coordinate(AxisId),
    /// Two expressions joined.
    Binary(BinaryExpr, Box<Expr>, Box<Expr>),
}

impl Expr {
    /// Joins two expressions, folding constants.
    pub fn binary(op: BinaryExpr, a: Expr, b: Expr) -> Expr {
        match (op, &a, &b) {
            (_, Expr::Int(x), Expr::Int(y)) if apply(op, *x, *y).is_some() => Expr::Int(apply(op, *x, *y).unwrap_or(0)),
            (BinaryExpr::Add | BinaryExpr::Sub, _, Expr::Int(0)) | (BinaryExpr::Mul, _, Expr::Int(1)) => a,
            (BinaryExpr::Add, Expr::Int(0), _) => b,
            _ => Expr::Binary(op, Box::new(a), Box::new(b)),
        }
    }

    /// The value for a rank at the coordinates; `None` on overflow or division by zero.
    pub fn eval(&self, coordinates: &[u64]) -> Option<i64> {
        match self {
            Expr::Int(value) => Some(*value),
            Expr::Coordinate(axis) => coordinates.get(axis.index()).map(|&c| c as i64),
            Expr::Binary(op, a, b) => apply(*op, a.eval(coordinates)?, b.eval(coordinates)?),
        }
    }

    /// The expression in the text form.
    pub fn print(&self, mesh: &Mesh) -> String {
        match self {
            Expr::Int(value) => value.to_string(),
            Expr::Coordinate(axis) => format!("${}", mesh.axes[*axis].name),
            Expr::Binary(op, a, b) => match op {
                BinaryExpr::Min => format!("min({}, {})", a.print(mesh), b.print(mesh)),
                BinaryExpr::Max => format!("max({}, {})", a.print(mesh), b.print(mesh)),
                _ => format!("{}{}{}", a.print_nested(mesh), symbol(*op), b.print_nested(mesh)),
            },
        }
    }

    fn print_nested(&self, mesh: &Mesh) -> String {
        match self {
            Expr::Binary(op, ..) if !matches!(op, BinaryExpr::Min | BinaryExpr::Max) => {
                format!("({})", self.print(mesh))
            }
            _ => self.print(mesh),
        }
    }
}

fn symbol(op: BinaryExpr) -> &'static str {
    match op {
        BinaryExpr::Add => "+",
        BinaryExpr::Sub => "-",
        BinaryExpr::Mul => "*",
        BinaryExpr::Div => "/",
        BinaryExpr::Mod => " mod ",
        BinaryExpr::Min => "min",
        BinaryExpr::Max => "max",
    }
}

fn apply(op: BinaryExpr, a: i64, b: i64) -> Option<i64> {
    match op {
        BinaryExpr::Add => a.checked_add(b),
        BinaryExpr::Sub => a.checked_sub(b),
        BinaryExpr::Mul => a.checked_mul(b),
        BinaryExpr::Div => a.checked_div_euclid(b),
        BinaryExpr::Mod => a.checked_rem_euclid(b),
        BinaryExpr::Min => Some(a.min(b)),
        BinaryExpr::Max => Some(a.max(b)),
    }
}
