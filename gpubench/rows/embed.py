"""Stores rows inside charts and reports (PNG, SVG, HTML) as compressed text, and reads them back.

Reading searches for a marker or for text chunks, and executes nothing.
"""

import base64
import gzip
import io
import re
import zlib

MARK = "gpubench-rows"
PNG_PART = 500_000
"""Characters of one text chunk of a PNG; readers refuse chunks of more than 1 MiB."""
MOST_BYTES, MOST_TIMES = 1 << 30, 200
"""Limits of unpacking, in bytes and as a multiple of the packed size: rows are compressed to 1/20 at best."""
LEAST_BYTES = 1 << 20
"""Every table may have this size when it is unpacked."""
PICTURES = {
    b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG", b"RIFF": "WebP", b"GIF8": "GIF", b"%PDF": "PDF",
}  # fmt: skip
GZIP = b"\x1f\x8b"
_MARKUP = re.compile(
    rb"(?:<dc:description>gpubench-rows:"
    rb'|<a id="gpubench-rows" href="data:application/gzip;base64,)([A-Za-z0-9+/=\s]*)[<"]'
)


class RowsLostError(ValueError):
    """A picture, page or .gz has no rows, or damaged ones."""


def packed(table: bytes) -> str:
    """Return the compressed CSV as ASCII; the same bytes give the same text."""
    return base64.b64encode(zlib.compress(table, 9)).decode()


def png_parts(table: bytes) -> dict[str, str]:
    """Return the CSV as text chunks of a PNG, by keyword."""
    text = packed(table)
    parts = [text[at : at + PNG_PART] for at in range(0, len(text), PNG_PART)]
    return {f"{MARK}-{number}-of-{len(parts)}": part for number, part in enumerate(parts, start=1)}


def svg_description(table: bytes) -> str:
    """Return the CSV as text of an SVG's `dc:description`."""
    return f"{MARK}:{packed(table)}"


def html_link(table: bytes) -> str:
    """Return the CSV as attributes of a page's download link, which a browser and `table_in` understand."""
    packed_table = base64.b64encode(gzip.compress(table, 9, mtime=0)).decode()
    return f'id="{MARK}" href="data:application/gzip;base64,{packed_table}" download="{MARK}.csv.gz"'


def table_in(content: bytes) -> bytes | None:
    """Return the CSV inside a picture, page or .csv.gz; None for other files. Raises RowsLostError if it is lost."""
    kind = next((name for start, name in PICTURES.items() if content.startswith(start)), "")
    markup = content[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<"
    try:
        if content.startswith(GZIP):
            return _unpacked(content)
        if kind == "PNG":
            return _unpacked(base64.b64decode(_png_text(content)))
        if markup and (match := _MARKUP.search(content)):
            return _unpacked(base64.b64decode(match[1]))
    except (ValueError, zlib.error):  # RowsLostError and binascii.Error are ValueErrors
        if content.startswith(GZIP):
            raise RowsLostError("not a gpubench file: a damaged .gz, or several joined to one") from None
    if not kind and not markup:
        return None
    raise RowsLostError(
        f"not a gpubench file: {kind or 'a page or SVG'} without rows in it. Social networks and editors drop them when"
        " they save a picture anew: ask for the original file or its CSV"
    )


def _png_text(content: bytes) -> bytes:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            info = {str(key): str(value) for key, value in picture.info.items() if str(key).startswith(MARK)}
    except Exception as error:  # Pillow has no common class for the errors of broken pictures
        raise RowsLostError from error
    count = max((int(key.rpartition("-")[2]) for key in info if key.rpartition("-")[2].isdecimal()), default=0)
    parts = [info.get(f"{MARK}-{number}-of-{count}") for number in range(1, min(count, len(info)) + 1)]
    if not count or len(parts) < count or None in parts:
        raise RowsLostError
    return "".join(part or "" for part in parts).encode("ascii", "replace")


def _unpacked(content: bytes) -> bytes:
    """Return unpacked content of zlib or gzip. Raises RowsLostError if it is too large, cut short, or several files."""
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    table = stream.decompress(content, min(MOST_BYTES, max(LEAST_BYTES, MOST_TIMES * len(content))))
    # Unused data: the file has several .gz, and only the first would be read.
    if not stream.eof or stream.unused_data:
        raise RowsLostError
    return table
