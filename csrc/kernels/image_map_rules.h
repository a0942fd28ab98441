// Where element o of a padded or resampled axis comes from. One text for the front doors and the GPU, included where
// WISP_INLINE, floor_of and ImageMap are known.
WISP_INLINE int64_t source_of(const ImageMap& m, int d, int64_t o) {
    const int64_t size = m.in[d], i = o - m.left[d];
    switch (m.kind) {
    case ImageMap::reflect: return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
    case ImageMap::replicate: return i < 0 ? 0 : i >= size ? size - 1 : i;
    case ImageMap::circular: {  // negative padding crops first
        const int64_t left = m.left[d], right = m.out[d] - size - left;
        const int64_t first = left < 0 ? -left : 0, kept = size - first + (right < 0 ? right : 0), at = left > 0 ? o - left : o;
        return first + (at < 0 ? at + kept : at >= kept ? at - kept : at);
    }
    case ImageMap::nearest:
        if (m.out[d] == size) return o;
        if (m.out[d] == 2 * size && m.scale[d] == 0.5f) return o / 2;
        break;
    default: break;
    }
    const float at = m.kind == ImageMap::nearest ? float(o) : float(o) + 0.5f;
    const int64_t whole = int64_t(floor_of(at * m.scale[d]));
    return whole < size - 1 ? whole : size - 1;
}
