// SPDX-License-Identifier: GPL-2.0

//! Assembly instructions of x86-64 that move the words of small pieces. `copy_row.rs` says why the
//! copy uses such instructions.

/// Moves the words of one piece, through a register.
macro_rules! moves {
    ($to:expr, $from:expr, $class:ident, $register:literal, $($offset:literal),+) => {
        core::arch::asm!(
            $(
                concat!("mov ", $register, ", [{from} + ", $offset, "]"),
                concat!("mov [{to} + ", $offset, "], ", $register),
            )+
            word = out($class) _,
            from = in(reg) $from,
            to = in(reg) $to,
            options(nostack, preserves_flags),
        )
    };
}

/// Moves the words of four pieces, one piece after another, through a register.
macro_rules! moves_of_four {
    ($to:expr, $from:expr, $class:ident, $register:literal, $($offset:literal),+) => {
        core::arch::asm!(
            $(
                concat!("mov ", $register, ", [{from} + ", $offset, "]"),
                concat!("mov [{to} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{from} + {from_step} + ", $offset, "]"),
                concat!("mov [{to} + {to_step} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{from} + 2 * {from_step} + ", $offset, "]"),
                concat!("mov [{to} + 2 * {to_step} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{from} + {from_third} + ", $offset, "]"),
                concat!("mov [{to} + {to_third} + ", $offset, "], ", $register),
            )+
            word = out($class) _,
            from = in(reg) $from.at,
            from_step = in(reg) $from.step,
            from_third = in(reg) $from.step.wrapping_mul(3),
            to = in(reg) $to.at,
            to_step = in(reg) $to.step,
            to_third = in(reg) $to.step.wrapping_mul(3),
            options(nostack, preserves_flags),
        )
    };
}

/// Moves the words of four pieces, which follow one another in the packet, to memory.
macro_rules! scatter_four {
    ($memory:expr, $packet:expr, $class:ident, $register:literal, $($offset:literal),+) => {
        core::arch::asm!(
            $(
                concat!("mov ", $register, ", [{packet} + ", $offset, "]"),
                concat!("mov [{memory} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{packet} + {size} + ", $offset, "]"),
                concat!("mov [{memory} + {step} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{packet} + 2 * {size} + ", $offset, "]"),
                concat!("mov [{memory} + 2 * {step} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{packet} + 3 * {size} + ", $offset, "]"),
                concat!("mov [{memory} + {third} + ", $offset, "], ", $register),
            )+
            word = out($class) _,
            memory = in(reg) $memory.at,
            step = in(reg) $memory.step,
            third = in(reg) $memory.step.wrapping_mul(3),
            packet = in(reg) $packet,
            size = const size_of::<Self>(),
            options(nostack, preserves_flags),
        )
    };
}

/// Moves the words of four pieces from memory to the packet, where they follow one another.
macro_rules! gather_four {
    ($memory:expr, $packet:expr, $class:ident, $register:literal, $($offset:literal),+) => {
        core::arch::asm!(
            $(
                concat!("mov ", $register, ", [{memory} + ", $offset, "]"),
                concat!("mov [{packet} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{memory} + {step} + ", $offset, "]"),
                concat!("mov [{packet} + {size} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{memory} + 2 * {step} + ", $offset, "]"),
                concat!("mov [{packet} + 2 * {size} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{memory} + {third} + ", $offset, "]"),
                concat!("mov [{packet} + 3 * {size} + ", $offset, "], ", $register),
            )+
            word = out($class) _,
            memory = in(reg) $memory.at,
            step = in(reg) $memory.step,
            third = in(reg) $memory.step.wrapping_mul(3),
            packet = in(reg) $packet,
            size = const size_of::<Self>(),
            options(nostack, preserves_flags),
        )
    };
}

/// Moves the words of four pieces, which follow one another in the packet, to places of a page.
macro_rules! scatter_places {
    ($at:expr, $places:expr, $packet:expr, $class:ident, $register:literal, $($offset:literal),+) => {
        core::arch::asm!(
            $(
                concat!("mov ", $register, ", [{packet} + ", $offset, "]"),
                concat!("mov [{at} + {a} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{packet} + {size} + ", $offset, "]"),
                concat!("mov [{at} + {b} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{packet} + 2 * {size} + ", $offset, "]"),
                concat!("mov [{at} + {c} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{packet} + 3 * {size} + ", $offset, "]"),
                concat!("mov [{at} + {d} + ", $offset, "], ", $register),
            )+
            word = out($class) _,
            at = in(reg) $at,
            a = in(reg) $places[0],
            b = in(reg) $places[1],
            c = in(reg) $places[2],
            d = in(reg) $places[3],
            packet = in(reg) $packet,
            size = const size_of::<Self>(),
            options(nostack, preserves_flags),
        )
    };
}

/// Moves the words of four pieces from places of a page to the packet, where they follow one
/// another.
macro_rules! gather_places {
    ($at:expr, $places:expr, $packet:expr, $class:ident, $register:literal, $($offset:literal),+) => {
        core::arch::asm!(
            $(
                concat!("mov ", $register, ", [{at} + {a} + ", $offset, "]"),
                concat!("mov [{packet} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{at} + {b} + ", $offset, "]"),
                concat!("mov [{packet} + {size} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{at} + {c} + ", $offset, "]"),
                concat!("mov [{packet} + 2 * {size} + ", $offset, "], ", $register),
            )+
            $(
                concat!("mov ", $register, ", [{at} + {d} + ", $offset, "]"),
                concat!("mov [{packet} + 3 * {size} + ", $offset, "], ", $register),
            )+
            word = out($class) _,
            at = in(reg) $at,
            a = in(reg) $places[0],
            b = in(reg) $places[1],
            c = in(reg) $places[2],
            d = in(reg) $places[3],
            packet = in(reg) $packet,
            size = const size_of::<Self>(),
            options(nostack, preserves_flags),
        )
    };
}

/// Moves the words of a piece, a given number of pieces after the start of the packet, to a place
/// of a page.
macro_rules! scatter_one {
    ($nth:literal, $page:expr, $place:expr, $packet:expr, $class:ident, $register:literal,
     $($offset:literal),+) => {
        core::arch::asm!(
            $(
                concat!("mov ", $register, ", [{packet} + ", $nth, " * {size} + ", $offset, "]"),
                concat!("mov [{page} + {place} + ", $offset, "], ", $register),
            )+
            word = out($class) _,
            page = in(reg) $page,
            place = in(reg) $place,
            packet = in(reg) $packet,
            size = const size_of::<Self>(),
            options(nostack, preserves_flags),
        )
    };
}

/// Moves the words of a piece from a place of a page to the packet. As for `scatter_one`.
macro_rules! gather_one {
    ($nth:literal, $page:expr, $place:expr, $packet:expr, $class:ident, $register:literal,
     $($offset:literal),+) => {
        core::arch::asm!(
            $(
                concat!("mov ", $register, ", [{page} + {place} + ", $offset, "]"),
                concat!("mov [{packet} + ", $nth, " * {size} + ", $offset, "], ", $register),
            )+
            word = out($class) _,
            page = in(reg) $page,
            place = in(reg) $place,
            packet = in(reg) $packet,
            size = const size_of::<Self>(),
            options(nostack, preserves_flags),
        )
    };
}

/// Moves the words of a piece by the macro `$one`, which takes the number `$nth` as a literal. The
/// number is less than eight, and constant where this is inlined.
macro_rules! move_nth {
    ($nth:expr, $one:ident, $($rest:tt)+) => {
        match $nth {
            0 => $one!(0, $($rest)+),
            1 => $one!(1, $($rest)+),
            2 => $one!(2, $($rest)+),
            3 => $one!(3, $($rest)+),
            4 => $one!(4, $($rest)+),
            5 => $one!(5, $($rest)+),
            6 => $one!(6, $($rest)+),
            _ => $one!(7, $($rest)+),
        }
    };
}

pub(super) use {
    gather_four, gather_one, gather_places, move_nth, moves, moves_of_four, scatter_four,
    scatter_one, scatter_places,
};
