asa_outcome=${ASA_OUTCOME-}
unset ASA_OUTCOME
