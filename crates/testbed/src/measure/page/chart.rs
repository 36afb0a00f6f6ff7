//! A chart of figures that grow: [`Chart`].

use super::tables::Said;
use anyhow::{Context, Result, anyhow, bail};
use plotters::prelude::*;
use std::collections::BTreeMap;

/// Colours of lines, told apart by people who see few colours too.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];
const SIZE: (u32, u32) = (760, 320);
/// Room above the highest point.
const HEADROOM: f64 = 1.08;

/// The kind of drawing, and the columns that it is made of.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Chart {
    /// Path of the picture, from the page's directory.
    pub(super) file: String,
    pub(super) title: String,
    /// A flag of the commands, or a column with a number in it.
    x: String,
    /// The text below the axis.
    along: String,
    /// The columns whose values are drawn.
    y: Vec<String>,
    unit: String,
    /// The beginning that the first cell of a row must have to be drawn.
    rows: String,
    is_logarithmic: bool,
}

/// Points by line, in the order in which the lines appeared.
#[derive(Default)]
struct Lines(Vec<(String, BTreeMap<u64, f64>)>);

impl Chart {
    /// Reads a line of the page.
    ///
    /// # Errors
    /// The thing that it lacks.
    pub(super) fn parse(line: &str) -> Result<Chart> {
        let value = |name: &str| {
            let begin = line.find(&format!(" {name}=\""))? + name.len() + 3;
            Some(line[begin..].split('"').next()?.to_owned())
        };
        let needed = |name: &str| value(name).with_context(|| format!("a chart needs {name}=\"...\": {line}"));
        let x = needed("x")?;
        Ok(Chart {
            file: needed("file")?,
            title: needed("title")?,
            along: value("along").unwrap_or_else(|| x.trim_start_matches("--").to_owned()),
            x,
            y: needed("y")?.split(';').map(|name| name.trim().to_owned()).collect(),
            unit: needed("unit")?,
            rows: value("rows").unwrap_or_default(),
            is_logarithmic: value("scale").as_deref() == Some("log"),
        })
    }

    /// Draws it.
    ///
    /// # Errors
    /// A column is not there, or there is no figure to draw.
    pub(super) fn draw(&self, said: &[Said]) -> Result<String> {
        let lines = self.lines(said)?;
        self.drawn(&lines).map_err(|error| anyhow!("{error}"))
    }

    fn lines(&self, said: &[Said]) -> Result<Lines> {
        let mut lines = Lines::default();
        for said in said {
            for name in &self.y {
                let y = said.column(name).with_context(|| format!("{} prints no column {name:?}", said.command))?;
                for row in &said.rows {
                    if !row[0].starts_with(&self.rows) {
                        continue;
                    }
                    let x = match said.column(&self.x) {
                        Some(column) => number(&row[column]).with_context(|| format!("no number: {}", row[column]))?,
                        None => match said.flag(&self.x) {
                            Some(value) => value,
                            // Another command of the block, which has another place.
                            None => continue,
                        },
                    };
                    let system = said.column("system").map_or("", |column| row[column].as_str());
                    let title = match self.y.len() {
                        1 => system.to_owned(),
                        _ => format!("{system}, {name}").trim_start_matches(", ").to_owned(),
                    };
                    lines.add(title, x, number(&row[y]).with_context(|| format!("no number: {}", row[y]))?);
                }
            }
        }
        if lines.0.is_empty() {
            bail!("no row begins with {:?} and has {}", self.rows, self.x);
        }
        Ok(lines)
    }

    /// Draws lines. A logarithmic axis is a linear one of logarithms: both are one type then.
    fn drawn(&self, lines: &Lines) -> Result<String, Box<dyn std::error::Error + '_>> {
        let along = |x: f64| if self.is_logarithmic { x.max(1.0).log2() } else { x };
        let back = |x: f64| if self.is_logarithmic { x.exp2() } else { x };
        let points = || lines.0.iter().flat_map(|(_, points)| points);
        let highest = points().map(|(_, y)| *y).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let furthest = points().map(|(x, _)| along(*x as f64)).fold(0.0, f64::max).max(1.0);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            area.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&area)
                .caption(&self.title, ("sans-serif", 17))
                .margin(12)
                .margin_right(36)
                .x_label_area_size(36)
                .y_label_area_size(64)
                .build_cartesian_2d(0.0..furthest, 0.0..highest * HEADROOM)?;
            chart
                .configure_mesh()
                .x_desc(&self.along)
                .y_desc(&self.unit)
                .x_label_formatter(&|x| grouped(back(*x)))
                .y_label_formatter(&|y| grouped(*y))
                .light_line_style(TRANSPARENT)
                .draw()?;
            for (which, (title, points)) in lines.0.iter().enumerate() {
                let colour = COLOURS[which % COLOURS.len()];
                let places: Vec<(f64, f64)> = points.iter().map(|(x, y)| (along(*x as f64), *y)).collect();
                chart
                    .draw_series(LineSeries::new(places.clone(), colour.stroke_width(2)))?
                    .label(title)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
                chart.draw_series(places.into_iter().map(|place| Circle::new(place, 3, colour.filled())))?;
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .border_style(BLACK.mix(0.2))
                .background_style(WHITE.mix(0.8))
                .draw()?;
            area.present()?;
        }
        Ok(svg)
    }
}

impl Lines {
    fn add(&mut self, title: String, x: f64, y: f64) {
        let place = self.0.iter().position(|(known, _)| *known == title).unwrap_or_else(|| {
            self.0.push((title, BTreeMap::new()));
            self.0.len() - 1
        });
        self.0[place].1.insert(x as u64, y);
    }
}

/// The last number in a cell: `put 64` has 64.
fn number(cell: &str) -> Option<f64> {
    cell.split_whitespace().rev().find_map(|word| word.parse().ok())
}

/// A number with its thousands apart.
fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    if number.abs() < 10.0 && number.fract().abs() > 1e-6 {
        return format!("{number:.1}");
    }
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "| load | system | per second |\n|---|---|---|\n| put 1 | ours | 20 |\n| put 64 | ours | 400 |\n\
        | put 64 | theirs | 100 |\n| get 64 | theirs | 9 |\n";

    fn chart() -> Chart {
        let line = "<!-- chart file=\"a.svg\" title=\"Puts\" x=\"load\" y=\"per second\" unit=\"put/s\" rows=\"put\" scale=\"log\" -->";
        Chart::parse(line).expect("it has all")
    }

    /// Goal: each system is a line, and rows of other loads are none of its points. Method: a table with both.
    #[test]
    fn lines_are_systems_and_points_are_rows() {
        let said = [Said::by("measure compare", OUTPUT)];
        let lines = chart().lines(&said).expect("there are some");
        let ours = BTreeMap::from([(1, 20.0), (64, 400.0)]);
        let theirs = BTreeMap::from([(64, 100.0)]);
        assert_eq!(lines.0, [("ours".to_owned(), ours), ("theirs".to_owned(), theirs)]);
        let svg = chart().draw(&said).expect("it can be drawn");
        assert!(svg.starts_with("<svg") && svg.contains("Puts") && svg.contains("theirs"), "{svg}");
    }

    #[test]
    fn a_flag_is_a_place_too_and_what_is_missing_is_named() {
        let of = |keys: &str, ms: &str| {
            Said::by(
                &format!("measure failover --keys {keys}"),
                &format!("| system | ms |\n|---|---|\n| ours | {ms} |\n"),
            )
        };
        let line = |y: &str| format!("<!-- chart file=\"a\" title=\"b\" x=\"--keys\" y=\"{y}\" unit=\"ms\" -->");
        // A command without the flag has no place there.
        let other = Said::by("measure failover --leases 9", "| system | ms |\n|---|---|\n| ours | 70 |\n");
        let said = [of("0", "5"), of("1000", "6"), other];
        let lines = Chart::parse(&line("ms")).expect("it has all").lines(&said).expect("there are some");
        assert_eq!(lines.0, [("ours".to_owned(), BTreeMap::from([(0, 5.0), (1_000, 6.0)]))]);
        let told = Chart::parse(&line("us")).expect("it has all").draw(&said).expect_err("no such column");
        assert!(told.to_string().contains("prints no column \"us\""), "{told}");
        assert!(Chart::parse("<!-- chart file=\"a\" -->").is_err());
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0.0, 1.0, 2.5, 64.0, 1_234_567.0].map(grouped), ["0", "1", "2.5", "64", "1 234 567"]);
    }
}
