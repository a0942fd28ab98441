// Where element o of a padded or resampled axis comes from. One text for the front doors and the GPU, included where
// WISP_INLINE, floor_of and ImageMap are known.
template <class I> WISP_INLINE I source_of(const ImageMap& m, int d, I o) {
    const I size = I(m.in[d]), left = I(m.left[d]), i = o - left;
    switch (m.kind) {
    case ImageMap::reflect: return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
    case ImageMap::replicate: return i < 0 ? 0 : i >= size ? size - 1 : i;
    case ImageMap::circular: {  // negative padding crops first
        const I right = I(m.out[d]) - size - left;
        const I first = left < 0 ? -left : 0, kept = size - first + (right < 0 ? right : 0), at = left > 0 ? o - left : o;
        return first + (at < 0 ? at + kept : at >= kept ? at - kept : at);
    }
    case ImageMap::nearest:
        if (I(m.out[d]) == size) return o;
        if (I(m.out[d]) == 2 * size && m.scale[d] == 0.5f) return o / 2;
        break;
    default: break;
    }
    const float at = m.kind == ImageMap::nearest ? float(o) : float(o) + 0.5f;
    const I whole = I(floor_of(at * m.scale[d]));
    return whole < size - 1 ? whole : size - 1;
}
