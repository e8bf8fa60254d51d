// SPDX-License-Identifier: GPL-2.0

//! SVG plots.

use std::{
    error::Error,
    ops::Range,
    path::{
        Path,
        PathBuf, //
    },
};

use plotters::{
    coord::{
        combinators::{
            IntoLogRange,
            LogCoord, //
        },
        ranged1d::ValueFormatter,
        Shift, //
    },
    prelude::*,
};

use crate::{
    group::{
        Group,
        Plot,
        GROUPS, //
    },
    record::{
        Records,
        Series, //
    },
    stats::{
        self,
        Spread, //
    },
    text,
};

type Failure = Box<dyn Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const PANEL_SIZE: (u32, u32) = (520, 400);
const FONT: &str = "sans-serif";
/// Colours that people with colour blindness can tell apart, too (Okabe and Ito).
const COLOURS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(80, 80, 80),
];

struct Line {
    label: String,
    points: Vec<(u64, Spread)>,
}

/// The vertical axis of a panel.
#[derive(PartialEq)]
enum Scale {
    /// From zero to more than 1.
    Ratio,
    /// Around 1.
    Near,
    /// Logarithmic.
    Log,
}

/// One set of axes.
struct Panel {
    title: String,
    y_label: String,
    scale: Scale,
    lines: Vec<Line>,
}

/// Writes a file for each group that has a plot.
pub fn all(records: &Records, dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut written = Vec::new();

    for group in GROUPS {
        let panels = panels(group, records);
        if panels.is_empty() {
            continue;
        }
        let path = dir.join(format!("{}.svg", group.key));
        draw(group, &panels, &path).map_err(|error| format!("{}: {error}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

/// Returns a panel for each name in the group, or one for all. A name with a single size has no
/// panel, because there is no line to draw.
fn panels(group: &Group, records: &Records) -> Vec<Panel> {
    let mut names: Vec<&str> = Vec::new();

    if group.plot == Plot::None {
        return Vec::new();
    }
    if group.plot == Plot::Growth {
        return growth(group, records).into_iter().collect();
    }
    for series in records.series.iter().filter(|s| s.group == group.key) {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    names
        .into_iter()
        .filter_map(|name| panel(group, name, records))
        .collect()
}

/// Returns a panel with a line for each name: the cost by the first way, relative to the cost at
/// the smallest size.
fn growth(group: &Group, records: &Records) -> Option<Panel> {
    let way = group.ways.first()?;
    let mut lines: Vec<Line> = Vec::new();
    let mut smallest = 1.0;

    for series in &records.series {
        if series.group != group.key || series.way != way.key {
            continue;
        }
        let cost = stats::latency(series)?;
        if lines.last().is_none_or(|line| line.label != series.name) {
            smallest = cost.median;
            lines.push(Line {
                label: series.name.clone(),
                points: Vec::new(),
            });
        }
        let spread = Spread {
            median: cost.median / smallest,
            min: cost.min / smallest,
            max: cost.max / smallest,
        };
        lines.last_mut()?.points.push((series.size, spread));
    }
    lines.retain(|line| line.points.len() > 1);
    (!lines.is_empty()).then(|| Panel {
        title: "one access".to_owned(),
        y_label: "cost, that of the smallest number = 1".to_owned(),
        scale: Scale::Near,
        lines,
    })
}

fn panel(group: &Group, name: &str, records: &Records) -> Option<Panel> {
    let of_way = |way: &str| -> Vec<&Series> {
        records
            .series
            .iter()
            .filter(|s| s.group == group.key && s.name == name && s.way == way)
            .collect()
    };
    let baseline = of_way(group.baseline.key);
    let first = baseline.first()?;
    let ratio = group.plot == Plot::Ratio;
    let ways = group.ways.iter().chain((!ratio).then_some(&group.baseline));
    let mut lines = Vec::new();

    if baseline.len() < 2 {
        return None;
    }
    for way in ways {
        let spread = |series: &Series| {
            if ratio {
                let base = baseline.iter().find(|base| base.size == series.size)?;
                stats::speedup(series, base)
            } else {
                text::figure(group, series)
            }
        };
        let points = of_way(way.key)
            .into_iter()
            .filter_map(|series| Some((series.size, spread(series)?)))
            .collect();
        lines.push(Line {
            label: way.label.to_owned(),
            points,
        });
    }
    Some(Panel {
        title: name.to_owned(),
        y_label: if ratio {
            format!("speed, {} = 1", group.baseline.label)
        } else {
            text::unit(group, first.unit).to_owned()
        },
        scale: if ratio { Scale::Ratio } else { Scale::Log },
        lines,
    })
}

fn draw(group: &Group, panels: &[Panel], path: &Path) -> Result<(), Failure> {
    let count = u32::try_from(panels.len())?;
    let width = PANEL_SIZE.0.saturating_mul(count);
    let height = PANEL_SIZE.1.saturating_add(40);
    let root = SVGBackend::new(path, (width, height)).into_drawing_area();

    root.fill(&WHITE)?;
    let root = root.titled(group.title, (FONT, 20))?;
    for (panel, area) in panels.iter().zip(root.split_evenly((1, panels.len()))) {
        draw_panel(group, panel, &area)?;
    }
    root.present()?;
    Ok(())
}

/// Returns the lowest and the highest value that is drawn.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| {
        (value.min(low), value.max(high))
    })
}

/// Returns the base of the horizontal axis. Labels are at its powers: sizes double, or grow by a
/// power of two or of ten.
fn base(lines: &[Line]) -> f64 {
    let sizes = lines.first().map_or(&[][..], |line| &line.points);
    let factor = sizes
        .windows(2)
        .filter_map(|pair| match pair {
            [(from, _), (to, _)] if to > from => Some(*to as f64 / *from as f64),
            _ => None,
        })
        .fold(f64::INFINITY, f64::min);

    if factor > 16.0 {
        10.0
    } else {
        factor.max(2.0)
    }
}

/// Returns the largest power of ten that is not above `value`.
fn decade(value: f64) -> f64 {
    10f64.powf(value.log10().floor())
}

fn axis_label(value: f64) -> String {
    if value >= 1.0 && (value - value.round()).abs() < 1e-6 {
        text::thousands(value.round() as u64)
    } else {
        text::digits(value)
    }
}

fn draw_panel(group: &Group, panel: &Panel, area: &Area<'_>) -> Result<(), Failure> {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let (left, right) = range(points().map(|&(size, _)| size as f64));
    let (low, high) = range(points().map(|(_, spread)| spread.median));
    let x = (left / 1.3..right * 1.3)
        .log_scale()
        .base(base(&panel.lines));
    let mut builder = ChartBuilder::on(area);

    builder
        .caption(&panel.title, (FONT, 17))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(64);
    // Leave room for the legend above the lines.
    if panel.scale == Scale::Log {
        let y = decade(low)..decade(high) * 100.0;
        let chart = builder.build_cartesian_2d(x, y.clone().log_scale())?;
        return fill(group, panel, chart, y);
    }
    let y = if panel.scale == Scale::Near {
        low.min(0.9) - 0.05..high.max(1.1) + 0.1
    } else {
        0.0..high.max(1.0) * 1.5
    };
    let chart = builder.build_cartesian_2d(x, y.clone())?;
    fill(group, panel, chart, y)
}

type Chart<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, Y>>;

/// Draws the axes and bars. `y` is the range of the vertical axis; longer bars end at its end.
fn fill<'a, 'b: 'a, Y>(
    group: &Group,
    panel: &Panel,
    mut chart: Chart<'a, 'b, Y>,
    y: Range<f64>,
) -> Result<(), Failure>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(group.size_label)
        .y_desc(&panel.y_label)
        .x_label_formatter(&|&value| text::size(group.size, value.round() as u64))
        .y_labels(6)
        .y_label_formatter(&|&value| axis_label(value))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 15))
        .bold_line_style(BLACK.mix(0.12))
        .light_line_style(TRANSPARENT)
        .draw()?;

    // Where lines coincide, the wider ones below stay visible.
    let widths = [6, 4, 2, 2];
    let styles = COLOURS.iter().zip(widths).cycle();
    for (line, (&colour, width)) in panel.lines.iter().zip(styles) {
        let bars = line.points.iter().map(|&(size, spread)| {
            let ends = [spread.min, spread.max].map(|end| (size as f64, end.clamp(y.start, y.end)));
            PathElement::new(ends, colour.mix(0.35).stroke_width(3))
        });
        let medians = || {
            line.points
                .iter()
                .map(|&(size, spread)| (size as f64, spread.median))
        };

        chart.draw_series(bars)?;
        chart.draw_series(LineSeries::new(medians(), colour.stroke_width(width)))?;
        chart
            .draw_series(medians().map(|at| Circle::new(at, 3, colour.filled())))?
            .label(line.label.as_str())
            .legend(move |(x, y)| {
                let end = (x.saturating_add(18), y);
                PathElement::new([(x, y), end], colour.stroke_width(3))
            });
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .margin(8)
        .label_font((FONT, 14))
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(())
}
